"""Sorted pages of rows, and the opaque cursors between them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, and_, or_

from search_spaces.errors import InvalidInput, closest

Place = list[float | int | None]
"""The sort key of a row; its last part is an id or a number, and never None."""


def encode(place: Place) -> str:
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


def read_sort(sort: str, names: Collection[str], *, of: str) -> tuple[str, bool]:
    """Return the field to sort by and whether it is descending, which a leading `-` says; raises
    InvalidInput for a field that is not in `names`."""
    name = sort.removeprefix("-")
    if name not in names:
        near = closest(name, names)
        reason = f"not a field to sort {of} by" + (f"; meant {' or '.join(near)}?" if near else "")
        valid = ", ".join(names) + "; with a leading - for descending order"
        raise InvalidInput("sort", sort, reason, valid=valid)
    return name, sort.startswith("-")


def follows(
    key: ColumnElement[Any], value: Any, *, falling: bool, later: ColumnElement[bool]
) -> ColumnElement[bool]:
    """Return the condition on rows after one whose key is `value`; rows without a key are last.

    Args:
        later: condition on rows after it among those with the same key.
    """
    if value is None:
        return and_(key.is_(None), later)
    beyond = key < value if falling else key > value
    return or_(beyond, and_(key == value, later), key.is_(None))
