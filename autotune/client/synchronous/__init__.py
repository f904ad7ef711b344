# Generated from `asynchronous` by `make client`: change that and run it again.
"""The client and its handles; `make client` writes `synchronous` from `asynchronous`, the same with
nothing awaited."""
