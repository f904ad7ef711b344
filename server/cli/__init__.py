"""The command `autotune`, with one module per noun."""

from server.cli.application import main

__all__ = ["main"]
