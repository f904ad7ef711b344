"""Cluster profiles of the service."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from autotune.schemas.wire import Wire


class ProfileSummary(Wire):
    """A cluster profile that a campaign may name.

    Attributes:
        source: the file that it was read from; empty for one that comes with autotune.
        problem: why it cannot be used; empty where it can.
    """

    name: str
    description: str = ""
    machine: str = Field("", description="of the catalog, that it belongs to; empty for any")
    program: str = ""
    source: str = ""
    problem: str = ""


class ProfileDetail(ProfileSummary):
    """The same with all that it says, table by table as in its file."""

    content: dict[str, Any]
