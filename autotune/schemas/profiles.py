"""Cluster profiles of the service."""

from __future__ import annotations

from typing import Any

from autotune.schemas.wire import Wire


class ProfileSummary(Wire):
    """A cluster profile that a campaign may name."""

    name: str
    """Name under which a campaign chooses it."""
    description: str = ""
    """Description."""
    machine: str = ""
    """Machine of the catalog; empty for any machine."""
    program: str = ""
    """Trainer of its jobs."""
    source: str = ""
    """File of the profile; empty for a built-in one."""
    problem: str = ""
    """Why it cannot be used; empty if it can."""


class ProfileDetail(ProfileSummary):
    """A cluster profile with its content, table by table as in its file."""

    content: dict[str, Any]
    """Content, table by table as in its file."""
