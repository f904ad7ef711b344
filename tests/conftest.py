"""What holds for every test."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take SIGINT again where it is ignored, as in a shell's background: tests send it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
