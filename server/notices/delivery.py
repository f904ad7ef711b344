"""Failed delivery of a notice."""

from __future__ import annotations


class NotDelivered(Exception):
    """The notice was not delivered, or delivery was not confirmed; it may be retried."""
