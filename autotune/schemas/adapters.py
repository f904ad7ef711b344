"""Trainers of the service that a campaign may name."""

from __future__ import annotations

from autotune.schemas.wire import Wire


class AdapterSummary(Wire):
    """A trainer that a file describes. What the file has trials run is not told."""

    name: str
    """Name under which a campaign chooses it."""
    description: str = ""
    """What it trains with, in words."""
    evidence: str = ""
    """What was done with it: `trained`, `parsed` (the trainer's own parser took what it writes),
    `read` (its words were held against the trainer's sources), or `unchecked`."""
    checked: str = ""
    """When, and at which version."""
    dimensions: tuple[str, ...] = ()
    """What a search may vary of it; every other dimension has one value."""
    own: bool = False
    """Whether it is the service's user's own; the others come with autotune."""
    problem: str = ""
    """Why it cannot be used, without what stands in the file; empty where it can."""
