"""The client and its handles; `make client` writes `synchronous` from `asynchronous`, the same with
nothing awaited."""
