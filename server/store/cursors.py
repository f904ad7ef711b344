"""Cursors: where a page of rows ended, opaque to callers."""

from __future__ import annotations

import base64
import binascii
import json

from search_spaces.errors import InvalidInput

Place = list[float | int | None]
"""The sort key of a row; its last part is an id or a number, and never None."""


def encode(place: Place) -> str:
    """Return the sort key of a page's last row as one URL-safe word."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def decode(cursor: str, *, parts: int) -> Place:
    """Return the sort key in a cursor; raises InvalidInput for what `encode` did not return."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        place = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        is_place = (
            isinstance(place, list)
            and len(place) == parts
            and isinstance(place[-1], int)
            and not any(isinstance(part, bool) for part in place)
            and all(isinstance(part, int | float | None) for part in place)
            and all(part is None or abs(part) < 2.0**63 for part in place)
        )
    except (binascii.Error, ValueError, RecursionError):
        is_place = False
    if not is_place:
        valid = "the `next` of the page before, with the same sort and filter"
        raise InvalidInput("cursor", cursor, "not a cursor of this listing", valid=valid)
    return list(place)
