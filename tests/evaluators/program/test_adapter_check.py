"""Mistakes that are easily made in an adapter, each noticed by what three starts have left."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autotune.measurement import AccumulationMeasurement
from autotune.schemas import TrialState
from evaluators.program.adapter_check import check_requests, judge, matches
from evaluators.trial import TrialOutcome
from tests.evaluators.adapter.samples import MACHINE, MODEL, my_script

SOUND = {"GAS 1": 0.5, "GAS 4": 1.9, "MBS 4": 1.6}
"""Seconds of an iteration."""


def _faults(
    folder: Path,
    *,
    printed_s: Mapping[str, float] = SOUND,
    arrived_s: Mapping[str, float] = SOUND,
    memory_gib: float = 0.3,
) -> dict[str, str]:
    """Return what is found wrong with starts that printed these times, at these intervals."""
    adapter = my_script(folder)
    requests = check_requests(adapter, MODEL, MACHINE, folder)
    assert list(requests) == list(SOUND)
    outcomes = {}
    for name, request in requests.items():
        log = folder / f"{request.token}.log"
        log.write_text(
            "".join(
                f"[start 1 rank 0 {step * arrived_s[name]:.6f}s] "
                f"[{step}/6] loss=10.0 {printed_s[name] * 1000}ms\n"
                for step in range(1, 7)
            )
        )
        gas = request.strategy.gradient_accumulation_steps
        measured = AccumulationMeasurement(
            gradient_accumulation_steps=gas, iteration_times_s=(printed_s[name],) * 3
        )
        outcomes[name] = TrialOutcome(
            status=TrialState.OK,
            started_at=datetime.now(UTC),
            duration_s=20.0,
            simulated=False,
            measurements=(measured,),
            peak_memory_gib=(memory_gib,),
            log_path=str(log),
        )
    findings = judge(adapter, requests, outcomes)
    return {finding.what: finding.told for finding in findings if not finding.good}


def test_a_sound_adapter_passes(tmp_path: Path) -> None:
    assert not _faults(tmp_path)


@pytest.mark.parametrize("factor", [1000, 0.001, 4])
def test_a_time_in_another_unit(tmp_path: Path, factor: float) -> None:
    faults = _faults(tmp_path, printed_s={name: s * factor for name, s in SOUND.items()})
    assert set(faults) == {f"{name}: clock" for name in SOUND}


@pytest.mark.parametrize("name", ["GAS 4", "MBS 4"])
def test_a_batch_that_does_not_reach_the_trainer(tmp_path: Path, name: str) -> None:
    times_s = SOUND | {name: 0.49}
    faults = _faults(tmp_path, printed_s=times_s, arrived_s=times_s)
    assert list(faults) == [f"{name}: growth"]
    assert "0.98 times as long" in faults[f"{name}: growth"]


def test_more_memory_than_there_is(tmp_path: Path) -> None:
    assert _faults(tmp_path, memory_gib=300.0) == {
        "memory": "the fullest rank takes 300 GiB of 2 GiB"
    }


def test_how_far_a_pattern_comes(tmp_path: Path) -> None:
    adapter = my_script(tmp_path, change=("loss=(?P<loss>", "los: (?P<loss>"))
    log = tmp_path / "trial.log"
    log.write_text("[start 1 rank 0 0.500000s] [1/6] loss=10.0 12.5ms\n")
    missed = matches(adapter, log)[0]
    assert missed.found is None
    assert missed.beginning == r"\[(?P<step>\d+)/\d+\] los"
    log.write_text("[start 1 rank 0 0.500000s] peak 301 MB\n")
    assert matches(adapter, log)[2].found == {"mb": "301"}
