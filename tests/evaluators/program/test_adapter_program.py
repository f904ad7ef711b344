"""What a trial of an adapter comes to that ended well, and yet was not measured."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from autotune.schemas import TrialState
from evaluators.adapter.reading import read_adapter
from evaluators.cluster.profile import ClusterProfile
from evaluators.program.adapter_program import AdapterProgram
from evaluators.program.program import AttemptEnd
from evaluators.trial import TrialOutcome, TrialProtocol, TrialRequest
from evaluators.trial_files import LOG
from tests.evaluators.adapter.samples import MACHINE, MODEL, strategy

ADAPTER = r"""command = ["train"]
[set]
"--samples" = "{micro_batch_size}"
[[read]]
log = 'step (?P<step>\d+) (?P<iteration_time_s>[\d.]+) s'
[[read]]
log = 'on (?P<share>\d+) of \d+: (?P<weights>\d+) weights'
parameters = "share * weights"
"""


def _outcome(folder: Path, *lines: str) -> TrialOutcome:
    (folder / "mine.toml").write_text(ADAPTER)
    adapter = read_adapter(folder / "mine.toml")
    stamped = (f"[start 1 rank 0 {n}.000000s] {line}\n" for n, line in enumerate(lines))
    (folder / LOG).write_text("".join(stamped))
    request = TrialRequest(
        token="it",
        transformer=MODEL,
        machine=MACHINE,
        strategy=strategy(),
        protocol=TrialProtocol(accumulations=(1,), measured_iterations=8),
        directory=folder,
    )
    ended = AttemptEnd(
        status=None, reason="", exit_code=0, started_at=datetime.now(UTC), duration_s=9.0
    )
    profile = ClusterProfile(name="local", program="adapter", adapter=adapter)
    return AdapterProgram(profile).outcome(request, folder, ended)


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
        assert "every 10th iteration alone" in error
    else:
        assert error is None


def test_ten_times_as_many_for_every_tenth(tmp_path: Path) -> None:
    outcome = _outcome(tmp_path, *(f"step {n} 0.{n} s" for n in range(10, 111, 10)))
    assert outcome.status is TrialState.OK
    assert len(outcome.measurements[0].iteration_times_s) == 10


def test_the_parameters_that_the_trainer_counts_are_told_with_its_trial(tmp_path: Path) -> None:
    steps = [f"step {n} 0.1 s" for n in range(1, 12)]
    assert _outcome(tmp_path, "on 2 of 4: 1200 weights", *steps).trainer_parameters == 2400.0
    assert _outcome(tmp_path, *steps).trainer_parameters is None
