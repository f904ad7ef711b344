"""How far a start with two GAS values came, where it was ended before its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluators.adapter.adapter import AdapterReader
from evaluators.adapter.figures import StartPart
from evaluators.adapter.log import AdapterLog
from evaluators.adapter.names import strategy_names
from evaluators.program.adapter_program import measured_parts
from tests.evaluators.adapter.samples import MACHINE, MODEL, strategy

WARMUP, FIRST, LAST = 2, 3, 8
READER = AdapterReader(log=r"step (?P<step>\d+): (?P<iteration_time_s>\S+) s")


def _log(told: int, *, first: int = FIRST) -> AdapterLog:
    parts = [
        StartPart(
            names=strategy_names(MODEL, MACHINE, strategy(gradient_accumulation_steps=gas)),
            iterations=iterations,
            warmup_iterations=warmup,
        )
        for gas, iterations, warmup in ((1, WARMUP + first, WARMUP), (4, LAST, 0))
    ]
    log = AdapterLog([READER], [parts])
    for step in range(told):  # it counts from 0
        log.take(f"[start 1 rank 0 {step}.000000s] step {step}: {step + 1}.5 s")
    return log


@pytest.mark.parametrize(
    ("told", "note", "measured"),
    [
        (13, None, {1: 3, 4: 8}),
        (9, {"iterations": 9, "given_up": False}, {1: 3, 4: 4}),
        (8, {"iterations": 7, "given_up": True}, {1: 3, 4: 3}),
        (5, {"iterations": 4, "given_up": True}, {1: 3}),
    ],
)
def test_each_gas_as_far_as_the_start_came(
    told: int, note: dict[str, object] | None, measured: dict[int, int], tmp_path: Path
) -> None:
    if note:
        (tmp_path / "ended-early-1.json").write_text(json.dumps(note))
    parts = list(measured_parts(_log(told), tmp_path, least=FIRST))
    assert [part.fault for part in parts] == [None] * len(measured)
    counts = {p.gradient_accumulation_steps: len(p.measurement.iteration_times_s) for p in parts}
    assert counts == measured
    assert parts[0].measurement.iteration_times_s[0] == WARMUP + 1.5


@pytest.mark.parametrize(("told", "missing"), [(4, "number 3 of 4"), (7, "number 6 of 7")])
def test_a_start_that_ended_too_soon(told: int, missing: str, tmp_path: Path) -> None:
    parts = list(measured_parts(_log(told), tmp_path, least=FIRST))
    assert missing in next(filter(None, (part.fault for part in parts)))


def test_a_part_that_warms_up_alone_measures_nothing(tmp_path: Path) -> None:
    parts = list(measured_parts(_log(7, first=0), tmp_path, least=FIRST))
    assert [part.fault for part in parts] == [None]
    assert parts[0].gradient_accumulation_steps == 4
    assert parts[0].measurement.iteration_times_s == (3.5, 4.5, 5.5, 6.5, 7.5)
