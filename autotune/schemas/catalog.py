"""Cluster profiles and adapters that a campaign may name."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from autotune.schemas.wire import Wire


class ProfileSummary(Wire):
    """A cluster profile that a campaign may name."""

    name: str
    """Name under which a campaign chooses it."""
    description: str = ""
    """Description."""
    machine: str = ""
    """Machine of the catalog; empty for any machine."""
    trainer: str = ""
    """Adapter of its trainer; empty for the bundled one."""
    source: str = ""
    """File of the profile; empty for a built-in one."""
    problem: str = ""
    """Why it cannot be used; empty if it can."""
    content: Annotated[dict[str, Any] | None, Field(exclude_if=lambda content: content is None)] = (
        None
    )
    """Its content, table by table as in its file; omitted in a list."""


class AdapterSummary(Wire):
    """An adapter: a trainer described by a file. Its command is not included."""

    name: str
    """Name under which a campaign chooses it."""
    description: str = ""
    """The trainer, in words."""
    evidence: str = ""
    """How it was checked: `trained`, `parsed` (the trainer's own parser accepted its command),
    `read` (compared with the trainer's sources), or `unchecked`."""
    checked: str = ""
    """Date and version of the check."""
    dimensions: tuple[str, ...] = ()
    """Dimensions that a search may vary; every other one has a fixed value."""
    own: bool = False
    """Whether it belongs to the service's user; the others come with autotune."""
    problem: str = ""
    """Why it cannot be used, without the file's content; empty if it can."""
