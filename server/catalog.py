"""Summaries of cluster profiles and adapters: those that come with autotune, and the user's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.schemas.catalog import AdapterSummary, ProfileSummary
from evaluators.adapter.catalog import READY, adapter_file, adapter_names, load_adapter
from evaluators.cluster import load_profile, profile_as_dict, profile_file, profile_names
from search_spaces.dimensions import DIMENSIONS
from search_spaces.errors import InvalidInput, InvalidInputs

TEMPLATES = frozenset(path.stem for path in READY.glob("template*.toml"))
"""Bundled adapters to copy, which do not describe a trainer."""


def profile_summaries(folder: Path) -> list[ProfileSummary]:
    """Return all profiles by name, including those in `folder`; invalid ones with their error."""
    summaries = []
    for name in profile_names(folder):
        source = _source(name, folder)
        try:
            content = profile_as_dict(load_profile(name, folder=folder))
        except (InvalidInput, InvalidInputs) as error:
            summaries.append(ProfileSummary(name=name, source=source, problem=str(error)))
        else:
            summaries.append(ProfileSummary(**_head(content), name=name, source=source))
    return summaries


def profile_detail(name: str, folder: Path) -> ProfileSummary:
    """Return the content of one profile.

    Raises:
        InvalidInput, InvalidInputs: there is no such profile, or its file is invalid.
    """
    profile = replace(load_profile(name, folder=folder), adapter=None)  # named by its trainer
    content = profile_as_dict(profile)
    return ProfileSummary(
        **_head(content), name=name, source=_source(name, folder), content=content
    )


def _source(name: str, folder: Path) -> str:
    path = profile_file(name, folder=folder)
    return str(path) if path.parent == folder else ""


def _head(content: dict[str, Any]) -> dict[str, str]:
    head = {key: str(content[key]) for key in ("description", "machine")}
    return {**head, "trainer": content.get("trainer", {}).get("adapter", "")}


def adapter_summaries(folder: Path) -> list[AdapterSummary]:
    return [_adapter_summary(name, folder) for name in adapter_names(folder)]


def usable_adapters(folder: Path) -> list[AdapterSummary]:
    found = [each for each in adapter_summaries(folder) if not each.problem]
    chosen = [each for each in found if each.own or each.name not in TEMPLATES]
    return sorted(chosen, key=lambda each: not each.own)


def _adapter_summary(name: str, folder: Path) -> AdapterSummary:
    own = adapter_file(name, folder=folder).parent != READY
    try:
        adapter = load_adapter(name, folder=folder)
    except (InvalidInput, InvalidInputs) as error:
        return AdapterSummary(name=name, own=own, problem=_message(error))
    varied = [*DIMENSIONS, *sorted(adapter.varied - set(DIMENSIONS))]
    return AdapterSummary(
        name=name,
        description=adapter.description,
        evidence=adapter.evidence,
        checked=adapter.checked,
        dimensions=tuple(dimension for dimension in varied if dimension in adapter.varied),
        own=own,
    )


def _message(error: InvalidInput | InvalidInputs) -> str:
    problems = [error] if isinstance(error, InvalidInput) else error.problems
    return "; ".join(f"{problem.field}: {problem.reason}" for problem in problems)
