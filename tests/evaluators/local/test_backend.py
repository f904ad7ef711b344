"""Real processes: how trials end, and that nothing of them is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.schemas.choices import TrialState
from evaluators.local.backend import LocalBackend
from evaluators.trial import TrialRequest, request_as_dict
from search_spaces.strategy import Strategy
from tests.evaluators.local.trials import (
    FOREVER,
    WIDE,
    finished,
    ranks_of,
    request,
    run,
    strategy,
    training,
)
from tests.patience import PATIENCE_S, until

OWNER = """
import json, sys, time
from evaluators.local.backend import LocalBackend
from evaluators.trial import request_from_dict
backend = LocalBackend()
backend.submit(request_from_dict(json.loads(sys.argv[1])))
time.sleep(3600)
"""


def endless(directory: Path, *, ranks: int = 2, time_limit_s: float = PATIENCE_S) -> TrialRequest:
    changes: dict[str, Any] = {"measured_iterations": FOREVER, "time_limit_s": time_limit_s}
    return request(directory, strategy(), ranks=ranks, **changes)


def training_ranks(backend: LocalBackend, trial: TrialRequest) -> list[psutil.Process]:
    """Submit it; return its ranks once it trains."""
    backend.submit(trial)
    until(lambda: training(trial), "it trains")
    ranks = ranks_of(os.getpid())
    assert len(ranks) == trial.machine.gpus_per_node
    return ranks


@pytest.mark.parametrize(
    ("layout", "status"),
    [
        (strategy(micro_batch_size=8), TrialState.OOM),
        (strategy(micro_batch_size=8, activation_checkpointing="full"), TrialState.OK),
        (strategy(2, 2, micro_batch_size=8), TrialState.OK),
    ],
    ids=lambda value: value.short() if hasattr(value, "short") else str(value),
)
def test_memory_limits_what_fits(
    backend: LocalBackend, tmp_path: Path, layout: Strategy, status: TrialState
) -> None:
    """One layout does not fit; with recomputation, or a share of the model on each rank, it does.

    The first takes 0.069 GiB, whatever else the machine does, and the others at most 0.039.
    """
    ranks = layout.tensor_parallel * layout.pipeline_parallel
    changes: dict[str, Any] = {"transformer": WIDE, "memory_gib": 0.052, "measured_iterations": 1}
    trial = request(tmp_path, layout, ranks=ranks, **changes)
    outcome = run(backend, trial)
    assert outcome.status is status, outcome.error
    if status is TrialState.OOM:
        assert "allocate" in str(outcome.error)
        assert outcome.measurements == ()
    else:
        assert max(outcome.peak_memory_gib) <= 0.052


def test_all_ranks_go_on_while_the_spread_is_large(backend: LocalBackend, tmp_path: Path) -> None:
    """A spread of a billionth never comes."""
    limits: dict[str, Any] = {"most_iterations": 5, "target_spread": 1e-9}
    trial = request(
        tmp_path, strategy(2), ranks=2, accumulations=(2, 4), measured_iterations=2, **limits
    )
    outcome = run(backend, trial)
    assert outcome.status is TrialState.OK, outcome
    assert [len(m.iteration_times_s) for m in outcome.measurements] == [5, 5]


def test_a_stopped_rank_is_a_hang(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "hang_limit_s", 4.0)
    trial = endless(tmp_path)
    ranks = training_ranks(backend, trial)
    ranks[1].suspend()
    outcome = finished(backend, trial)
    assert outcome.status is TrialState.TIMEOUT
    assert str(outcome.error).startswith("hung: no rank has worked for 4 s")
    assert "iteration" in str(outcome.error)
    assert outcome.duration_s < PATIENCE_S / 2


def test_a_killed_rank_is_a_crash_and_its_signal_the_cause(
    backend: LocalBackend, tmp_path: Path
) -> None:
    trial = endless(tmp_path)
    ranks = training_ranks(backend, trial)
    ranks[1].kill()
    outcome = finished(backend, trial)
    assert outcome.status is TrialState.CRASHED
    assert "SIGKILL" in str(outcome.error)
    until(lambda: not any(rank.is_running() for rank in ranks), "its processes have gone")


def test_a_killed_supervisor_is_a_crash(backend: LocalBackend, tmp_path: Path) -> None:
    trial = endless(tmp_path)
    ranks = training_ranks(backend, trial)
    psutil.Process(ranks[0].ppid()).kill()
    outcome = finished(backend, trial)
    assert outcome.status is TrialState.CRASHED
    assert "supervisor" in str(outcome.error)
    until(lambda: not any(rank.is_running() for rank in ranks), "its ranks have gone")


def test_a_full_disk_is_reported(backend: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / "trial.log").symlink_to("/dev/full")
    outcome = run(backend, request(tmp_path, strategy(), ranks=1))
    assert outcome.status is TrialState.LOST
    assert str(outcome.error).startswith("the disk was full (No space left on device): ")


@pytest.mark.parametrize(
    ("directory", "name", "cause"),
    [("trial", "trial/result.json", "Is a directory"), ("file/trial", "file", "directory")],
)
def test_an_unwritable_folder_or_result_is_reported(
    backend: LocalBackend, tmp_path: Path, directory: str, name: str, cause: str
) -> None:
    if name == "file":
        (tmp_path / name).touch()
    else:
        (tmp_path / name).mkdir(parents=True)
    outcome = run(backend, request(tmp_path / directory, strategy(), ranks=1))
    assert outcome.status is TrialState.CRASHED
    assert cause in str(outcome.error)


@pytest.mark.parametrize("moment", ["importing", "training"])
def test_nothing_outlives_the_owner_and_the_trial_is_run_again(
    backend: LocalBackend, tmp_path: Path, moment: str
) -> None:
    """The owner is killed while the warm process imports, or while ranks train."""
    trial = endless(tmp_path)
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    written = json.dumps(request_as_dict(trial))
    with subprocess.Popen([sys.executable, "-c", OWNER, written], env=environment) as owner:
        family = psutil.Process(owner.pid)
        ready = {"importing": lambda: family.children(), "training": lambda: training(trial)}
        until(ready[moment], moment)
        below = family.children(recursive=True)
        assert len(below) == {"importing": 1, "training": 4}[moment]
        owner.send_signal(signal.SIGKILL)
    until(lambda: not any(process.is_running() for process in below), "all have gone")
    assert backend.poll([trial]) == {}
    again = replace(trial, protocol=replace(trial.protocol, measured_iterations=1))
    assert run(backend, again).status is TrialState.OK


@pytest.mark.usefixtures("backend")
def test_a_backend_that_is_closed_ends_its_trials(tmp_path: Path) -> None:
    first = LocalBackend()
    before = psutil.Process().children()
    trial = endless(tmp_path)
    first.submit(trial)
    (warm,) = set(psutil.Process().children()) - set(before)
    first.close()
    assert not warm.is_running()
    assert first.poll([trial]) == {}
