"""The example notebook runs as it stands, and shows the outputs that are stored in it."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.autotune.client.notebook import METADATA, NOTEBOOK, executed, read
from tests.serving import Served

LARGEST_BYTES = 400_000
NOISE = re.compile(r"/tmp|/home|/root|localhost|127\.0\.0\.1|object at 0x|datetime|Warning")
"""What another machine, or another day, would show otherwise."""


@pytest.fixture(scope="module")
def committed() -> Any:
    return read()


def test_it_is_whole_small_and_free_of_the_machine(committed: Any) -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert len(text.encode()) < LARGEST_BYTES
    assert NOISE.findall(text) == []
    assert committed.metadata == METADATA
    cells = code_cells(committed)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))


@pytest.mark.soak
@pytest.mark.xdist_group("client")  # one service for all
def test_it_gives_what_it_shows(committed: Any, service: Served, tmp_path: Path) -> None:
    """Figures follow the cost model and the search, so what they are is no matter of this test."""
    run = executed(deepcopy(committed), url=service.url, folder=tmp_path)
    assert all(cell.execution_count for cell in code_cells(run))
    assert [shown(cell) for cell in code_cells(run)] == [shown(c) for c in code_cells(committed)], (
        "stale: run `python -m tests.autotune.client.notebook`"
    )


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: Any) -> list[tuple[str, list[str], list[str]]]:
    """Return what kinds of things a cell shows, with the headings of its data frames."""
    return [
        (
            output.output_type,
            sorted(output.get("data", {})),
            re.findall(r"<th>([a-z_]+)</th>", output.get("data", {}).get("text/html", "")),
        )
        for output in cell.outputs
    ]
