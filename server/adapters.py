"""The trainers' adapters of this service's user, as they are shown."""

from __future__ import annotations

from pathlib import Path

from autotune.schemas import AdapterSummary
from evaluators.adapter.catalog import READY, adapter_file, adapter_names, load_adapter
from search_spaces.dimensions import DIMENSIONS
from search_spaces.errors import InvalidInput, InvalidInputs

TEMPLATES = frozenset(path.stem for path in READY.glob("template*.toml"))
"""Ready adapters to copy, which describe no trainer."""


def adapter_summaries(folder: Path) -> list[AdapterSummary]:
    """Return all adapters by name, those in `folder` too; one that cannot be used says why."""
    return [_summary(name, folder) for name in adapter_names(folder)]


def usable_adapters(folder: Path) -> list[AdapterSummary]:
    """Return those that a campaign may name, one's own first."""
    found = [each for each in adapter_summaries(folder) if not each.problem]
    chosen = [each for each in found if each.own or each.name not in TEMPLATES]
    return sorted(chosen, key=lambda each: not each.own)


def _summary(name: str, folder: Path) -> AdapterSummary:
    own = adapter_file(name, folder=folder).parent != READY
    try:
        adapter = load_adapter(name, folder=folder)
    except (InvalidInput, InvalidInputs) as error:
        return AdapterSummary(name=name, own=own, problem=_told(error))
    varied = [*DIMENSIONS, *sorted(adapter.varied - set(DIMENSIONS))]
    return AdapterSummary(
        name=name,
        description=adapter.description,
        evidence=adapter.evidence,
        checked=adapter.checked,
        dimensions=tuple(dimension for dimension in varied if dimension in adapter.varied),
        own=own,
    )


def _told(error: InvalidInput | InvalidInputs) -> str:
    """Return what is wrong, and where: whoever reads it need not know the commands of the file."""
    problems = [error] if isinstance(error, InvalidInput) else error.problems
    return "; ".join(f"{problem.field}: {problem.reason}" for problem in problems)
