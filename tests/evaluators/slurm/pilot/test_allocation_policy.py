"""What fits into an allocation, and what becomes of its nodes, as pure functions."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from evaluators.attempt import ENDED, Attempt
from evaluators.cluster.profile import Pilot
from evaluators.slurm.job_decision import NO_LOSS
from evaluators.slurm.pilot.allocation import RunningAllocation
from evaluators.slurm.pilot.backend import why_refused, why_unfit
from evaluators.slurm.pilot.trial import LATE_S, StepProcess
from evaluators.time_limit import KILL_AFTER_S, longest_s
from tests.evaluators.slurm.pilot.scene import requests


def test_nodes_that_an_allocation_no_longer_has_have_failed() -> None:
    allocation = RunningAllocation(job_id="7", nodes=("n01", "n03"), ends_at=None, queried_at=10.0)
    assert allocation.loss_of(["n01", "n02"], since=10.0) is None, "not asked since"
    loss = allocation.loss_of(["n01", "n02"], since=9.0)
    assert loss is not None
    assert (loss.status, loss.failed_nodes) == (TrialState.NODE_FAIL, frozenset({"n02"}))
    assert allocation.loss_of(["n01"], since=9.0) == NO_LOSS


def test_a_trial_fits_when_its_nodes_and_its_time_do() -> None:
    (trial,) = requests(Path("trials"), 2, time_limit_s=100.0)
    allocation = RunningAllocation(job_id="7", nodes=("n01", "n02"), ends_at=1000.0, queried_at=0.0)
    latest = 1000.0 - longest_s(trial.protocol.time_limit_s)
    assert why_unfit(trial, allocation, allocation.nodes, now=latest) == ""
    assert "beyond the end" in why_unfit(trial, allocation, allocation.nodes, now=latest + 1)
    assert "2 nodes, and 1" in why_unfit(trial, allocation, allocation.nodes[:1], now=latest)


def test_an_accepted_trial_fits_in_a_new_allocation_for_a_while() -> None:
    pilot = Pilot(nodes=2, time_limit_h=1.0)
    (trial,) = requests(Path("trials"), 2, time_limit_s=3516.0)
    assert "too long" in why_refused(trial, pilot)
    (trial,) = requests(Path("trials"), 2, time_limit_s=3515.0)
    assert why_refused(trial, pilot) == ""
    allocation = RunningAllocation(job_id="7", nodes=("n01", "n02"), ends_at=3600.0, queried_at=0.0)
    assert why_unfit(trial, allocation, allocation.nodes, now=60.0) == ""


@pytest.mark.parametrize("off_s", [-86_400, 86_400])
def test_no_clock_that_is_set_ends_a_trial_of_another_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off_s: int
) -> None:
    (trial,) = requests(tmp_path, 1, time_limit_s=60.0)
    attempt = Attempt(request=trial, number=1)
    attempt.folder.mkdir(parents=True)
    there = StepProcess(attempt, None)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + off_s)
    assert there.alive()
    began = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began + 60.0 + KILL_AFTER_S)
    assert there.alive()
    monkeypatch.setattr(time, "monotonic", lambda: began + 60.0 + KILL_AFTER_S + LATE_S)
    assert not there.alive()


def test_a_trial_of_another_host_ends_when_it_says_so(tmp_path: Path) -> None:
    (trial,) = requests(tmp_path, 1)
    attempt = Attempt(request=trial, number=1)
    attempt.folder.mkdir(parents=True)
    there = StepProcess(attempt, None)
    assert there.alive()
    (attempt.folder / ENDED).touch()
    assert not there.alive()
