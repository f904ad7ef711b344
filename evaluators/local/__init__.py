"""Trials on this machine: real training by the bundled trainer."""

from evaluators.local.backend import LocalBackend

__all__ = ["LocalBackend"]
