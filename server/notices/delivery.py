"""What keeps a notice from whoever is to be told."""

from __future__ import annotations


class NotDelivered(Exception):
    """It did not arrive, or nobody said that it did; it may be tried again."""
