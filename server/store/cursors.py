"""Cursors: where a page of rows ended, opaque to callers."""

from __future__ import annotations

import base64
import binascii
import json

from search_spaces.errors import InvalidInput

Place = list[float | int | None]
"""The sort key of a row; its last part is an id or a number, and never None."""


def encode(place: Place) -> str:
    """The sort key of a page's last row as one URL-safe word."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def decode(cursor: str, *, parts: int) -> Place:
    """The reverse; raises InvalidInput for anything that `encode` did not give."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        place = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        is_place = isinstance(place, list) and len(place) == parts and all(map(_is_part, place))
        is_place = is_place and isinstance(place[-1], int)
    except (binascii.Error, ValueError, RecursionError):
        is_place = False
    if not is_place:
        valid = "the `next` of the page before, with the same sort and filter"
        raise InvalidInput("cursor", cursor, "not a cursor of this listing", valid=valid)
    return list(place)


def _is_part(part: object) -> bool:
    if isinstance(part, bool) or not isinstance(part, int | float | None):
        return False
    return part is None or -(2.0**63) < part < 2.0**63
