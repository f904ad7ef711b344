"""Cluster profiles of the service."""

from __future__ import annotations

from typing import Any

from autotune.schemas.wire import Wire


class ProfileSummary(Wire):
    """A cluster profile that a campaign may name."""

    name: str
    """Name under which a campaign chooses it."""
    description: str = ""
    """What it is for, in words."""
    machine: str = ""
    """Machine of the catalog that it belongs to; empty for any."""
    program: str = ""
    """What its jobs run to train."""
    source: str = ""
    """File that it was read from; empty for one that comes with autotune."""
    problem: str = ""
    """Why it cannot be used; empty where it can."""


class ProfileDetail(ProfileSummary):
    """A cluster profile with all that it says, table by table as in its file."""

    content: dict[str, Any]
    """All that it says, table by table as in its file."""
