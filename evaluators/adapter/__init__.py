"""Adapters: support for any trainer by a file that says how to pass it a strategy and how to read
its output."""
