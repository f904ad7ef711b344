"""What a trial of an adapter comes to that ended well, and yet was not measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from evaluators.adapter.adapter import Adapter, AdapterReader, AdapterRefusal, OneStart
from evaluators.adapter.figures import StartPart
from evaluators.adapter.log import AdapterLog
from evaluators.adapter.names import strategy_names
from evaluators.adapter.reading import read_adapter
from evaluators.adapter.rendering import start_of
from evaluators.cluster.profile import ClusterProfile
from evaluators.program.adapter_program import (
    AdapterProgram,
    PlannedStarts,
    accumulation_of,
    measured_parts,
)
from evaluators.program.program import AttemptEnd, Launcher
from evaluators.trial import LOG, TrialOutcome, TrialProtocol, TrialRequest
from tests.evaluators.adapter.samples import MACHINE, MODEL, my_script, strategy

ADAPTER = r"""command = ["train"]
[set]
"--samples" = "{micro_batch_size}"
[[read]]
log = 'step (?P<step>\d+) (?P<iteration_time_s>[\d.]+) s'
[[read]]
log = 'on (?P<share>\d+) of \d+: (?P<weights>\d+) weights'
parameters = "share * weights"
[[read]]
log = 'batch: (?P<micro_batch_size>\d+)'
"""


def _outcome(folder: Path, *lines: str) -> TrialOutcome:
    (folder / "mine.toml").write_text(ADAPTER)
    adapter = read_adapter(folder / "mine.toml")
    stamped = (f"[start 1 rank 0 {n}.000000s] {line}\n" for n, line in enumerate(lines))
    (folder / LOG).write_text("".join(stamped))
    ended = AttemptEnd(
        status=None, reason="", exit_code=0, started_at=datetime.now(UTC), duration_s=9.0
    )
    profile = ClusterProfile(name="local", adapter=adapter)
    return AdapterProgram(profile).outcome(_request(folder), folder, ended)


def _request(folder: Path) -> TrialRequest:
    return TrialRequest(
        token="it",
        transformer=MODEL,
        machine=MACHINE,
        strategy=strategy(),
        protocol=TrialProtocol(accumulations=(1,), measured_iterations=8),
        directory=folder,
    )


@pytest.mark.parametrize(
    ("error", "state"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory", TrialState.OOM),
        ("KeyError: 'optimizer'", TrialState.CRASHED),
    ],
)
def test_a_trainer_that_ends_well_though_it_failed(
    error: str, state: TrialState, tmp_path: Path
) -> None:
    trace = ("Traceback (most recent call last):", '  File "t.py", line 1, in step', error)
    outcome = _outcome(tmp_path, "step 1 0.1 s", "step 2 0.1 s", *trace)
    assert outcome.status is state
    assert outcome.error
    assert outcome.error.startswith(error)
    assert "number 2 of 11" in outcome.error


@pytest.mark.parametrize("lines", [["step 10 0.1 s"], ["step 5 0.1 s", "step 10 0.1 s"]])
def test_a_trainer_that_tells_of_few_iterations(lines: list[str], tmp_path: Path) -> None:
    error = _outcome(tmp_path, *lines).error
    if len(lines) == 1:
        assert error
        assert "only every 10th iteration" in error
    else:
        assert error is None


def test_ten_times_as_many_for_every_tenth(tmp_path: Path) -> None:
    outcome = _outcome(tmp_path, *(f"step {n} 0.{n} s" for n in range(10, 111, 10)))
    assert outcome.status is TrialState.OK
    assert len(outcome.measurements[0].iteration_times_s) == 10


def test_the_trainers_count_of_parameters_comes_with_its_trial(tmp_path: Path) -> None:
    steps = [f"step {n} 0.1 s" for n in range(1, 12)]
    assert _outcome(tmp_path, "on 2 of 4: 1200 weights", *steps).trainer_parameters == 2400.0
    assert _outcome(tmp_path, *steps).trainer_parameters is None


def test_a_reported_value_is_confirmed_or_fails_the_trial(tmp_path: Path) -> None:
    steps = [f"step {n} 0.1 s" for n in range(1, 12)]
    size = strategy().micro_batch_size
    assert _outcome(tmp_path, f"batch: {size}", *steps).confirmed == ("micro_batch_size",)
    differs = _outcome(tmp_path, f"batch: {size + 1}", *steps)
    assert differs.error is not None
    assert f"reports micro_batch_size = {size + 1} instead of {size}" in differs.error
    assert not differs.confirmed


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


def test_a_large_batch_is_warmed_up_at_a_smaller_one_if_shared(
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


def test_a_lock_of_a_killed_build_blocks_no_later_trial(tmp_path: Path) -> None:
    """Extensions are built in a folder of the service's, where a build that is alive goes on."""
    dead, alive = (tmp_path / "torch-extensions" / "mine" / name for name in ("a", "b"))
    for build in (dead, alive):
        build.mkdir(parents=True)
        (build / "lock").touch()
        (build / "main.o").touch()
    long_ago = time.time() - 3600
    for path in (*dead.iterdir(), dead, alive / "lock"):
        os.utime(path, (long_ago, long_ago))
    adapter = replace(my_script(tmp_path), needs=("deepspeed",))
    program = AdapterProgram(ClusterProfile(name="mine", python=sys.executable, adapter=adapter))
    folder = tmp_path / "trial" / "attempt-1"
    folder.mkdir(parents=True)
    commands = program.commands(_request(folder), folder, Launcher(srun=("true",)))
    bash = {name: value for name, value in os.environ.items() if name != "TORCH_EXTENSIONS_DIR"}
    subprocess.run(["bash", "-c", commands], cwd=folder, env=bash, check=True)
    assert [path.name for path in dead.iterdir()] == ["main.o"]
    assert (alive / "lock").exists()
