"""The command `autotune`: one module for each noun."""

from server.cli.application import main

__all__ = ["main"]
