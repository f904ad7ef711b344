"""Adapters of trainers that campaigns may use."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter

from autotune.schemas.catalog import AdapterSummary
from evaluators.adapter.catalog import READY, adapter_file, adapter_names, load_adapter
from search_spaces.dimensions import DIMENSIONS
from search_spaces.errors import InvalidInput, InvalidInputs
from server.api.dependencies import SettingsOf, problems

router = APIRouter(prefix="/adapters", tags=["adapters"])
TEMPLATES = frozenset(path.stem for path in READY.glob("template*.toml"))
"""Bundled adapters to copy, which do not describe a trainer."""


@router.get("", response_description="All adapters.", responses=problems())
def listing(settings: SettingsOf) -> list[AdapterSummary]:
    """List all adapters by name with the dimensions that each can vary; an invalid one has its
    error. The commands in their files are not included."""
    return adapter_summaries(settings.adapters_dir)


def adapter_summaries(folder: Path) -> list[AdapterSummary]:
    """Return all adapters by name, including those in `folder`; invalid ones with their error."""
    return [_summary(name, folder) for name in adapter_names(folder)]


def usable_adapters(folder: Path) -> list[AdapterSummary]:
    """Return the adapters that a campaign may use, the user's own first."""
    found = [each for each in adapter_summaries(folder) if not each.problem]
    chosen = [each for each in found if each.own or each.name not in TEMPLATES]
    return sorted(chosen, key=lambda each: not each.own)


def _summary(name: str, folder: Path) -> AdapterSummary:
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
    """Return what is wrong and where, without the commands in the file, which the reader need not
    see."""
    problems = [error] if isinstance(error, InvalidInput) else error.problems
    return "; ".join(f"{problem.field}: {problem.reason}" for problem in problems)
