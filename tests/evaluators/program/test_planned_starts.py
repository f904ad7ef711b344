"""Which GAS values share a start, and at which one a trial warms up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evaluators.adapter.adapter import Adapter, AdapterRefusal, OneStart
from evaluators.adapter.rendering import start_of
from evaluators.program.adapter_program import PlannedStarts, accumulation_of
from evaluators.trial import TrialProtocol, TrialRequest
from tests.evaluators.adapter.samples import MACHINE, MODEL, my_script, strategy

CONFIRMING = TrialProtocol(
    accumulations=(64,), warmup_accumulation=4, warmup_iterations=2, measured_iterations=5
)
SHARED = OneStart(places={"--schedule": "{first_iterations}:{first_gradient_accumulation_steps}"})


def _starts(adapter: Adapter, protocol: TrialProtocol) -> PlannedStarts:
    request = TrialRequest(
        token="one",
        transformer=MODEL,
        machine=MACHINE,
        strategy=strategy(gradient_accumulation_steps=64),
        protocol=protocol,
        directory=Path("one"),
    )
    return PlannedStarts(adapter=adapter, request=request)


def _planned(starts: PlannedStarts) -> list[list[tuple[int, int, int]]]:
    """Return of each part of each start its GAS, its iterations, and those of its warm-up."""
    return [
        [(accumulation_of(part), part.iterations, part.warmup_iterations) for part in parts]
        for parts in starts.parts
    ]


def test_a_large_batch_is_warmed_up_at_a_smaller_one_where_one_start_has_both(
    tmp_path: Path,
) -> None:
    apart = replace(my_script(tmp_path), warmup_iterations=3)
    shared = replace(apart, one_start=SHARED)
    starts = _starts(shared, CONFIRMING)
    assert _planned(starts) == [[(4, 3, 3), (64, 5, 0)]]
    start = start_of(shared, starts.plan(1, python="python3", out="."))
    assert start.words[start.words.index("--schedule") + 1] == "3:4"
    assert start.words[start.words.index("--updates") + 1] == "8"
    searching = replace(CONFIRMING, accumulations=(4, 8))
    assert _planned(_starts(shared, searching)) == [[(4, 8, 3), (8, 5, 0)]]
    assert _planned(_starts(apart, searching)) == [[(4, 8, 3)], [(8, 8, 3)]]


@pytest.mark.parametrize(
    "refused", ["never", "gradient_accumulation_steps < 64", "first_gradient_accumulation_steps"]
)
def test_it_is_warmed_up_at_its_own_where_it_cannot_be_otherwise(
    refused: str, tmp_path: Path
) -> None:
    adapter = my_script(tmp_path)
    if refused.startswith("first"):
        one_start = OneStart(places=SHARED.places, when=f"{refused} > 4")
        adapter = replace(adapter, one_start=one_start)
    elif refused != "never":
        refuse = (*adapter.refuse, AdapterRefusal(when=refused, because="it is too small"))
        adapter = replace(adapter, one_start=SHARED, refuse=refuse)
    assert _planned(_starts(adapter, CONFIRMING)) == [[(64, 8, 3)]]
