"""Grouping of failures."""

from __future__ import annotations

import re

NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
"""Addresses, ranks, times: what differs between two failures of one kind."""


def cause_of(error: str) -> str:
    """Return a failure's message without numbers, equal for failures of one kind.

    It groups failures and is never shown: users read the message of one of them.
    """
    return NUMBERS.sub("0", error)
