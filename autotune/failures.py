"""What failures have in common."""

from __future__ import annotations

import re

NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
"""Addresses, ranks, times: what differs between two failures of one kind."""


def cause_of(error: str) -> str:
    """Return what a failure's message has in common with those of others that failed alike."""
    return NUMBERS.sub("0", error)
