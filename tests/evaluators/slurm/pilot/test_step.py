"""Trials that another host runs, of which only their folders tell."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from evaluators.attempt.attempt import ENDED, Attempt
from evaluators.slurm.pilot.step import LATE_S, StepProcess
from evaluators.time_limit import KILL_AFTER_S
from tests.evaluators.slurm.pilot.scene import requests


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
