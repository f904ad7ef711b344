"""How trials end, on a real Slurm."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from evaluators.cluster.profile import Polling
from evaluators.slurm.job_tracker import HURRY_FACTOR
from evaluators.trial import TrialProgress
from tests.evaluators.slurm.trials import (
    COUNTED,
    PROFILE,
    Backends,
    finish,
    request,
    run,
    runs,
    standing,
)
from tests.patience import until

pytestmark = pytest.mark.xdist_group("slurm")


def test_odd_endings_are_distinguished(backends: Backends, tmp_path: Path) -> None:
    """Each with its own few lines; all at the same time."""
    lines = {
        "cut": "echo 0.2 >result; : >result",
        "forks": "{srun} bash -c 'sleep 987654 >/dev/null 2>&1 & exit 5'",
        "silent": "rm -f trial.log; echo 0.25 >result",
    }
    trials = {name: request(tmp_path, name) for name in lines}
    for name, text in lines.items():
        backends.make(text).submit(trials[name])
    ended = {name: finish(backends[lines[name]], trials[name])[0] for name in lines}
    assert {name: o.status.value for name, o in ended.items()} == {
        "cut": "crashed",
        "forks": "crashed",
        "silent": "ok",
    }
    assert ended["cut"].error == "its result cannot be read"
    assert ended["silent"].log_tail == ""
    assert all(outcome.job_id and outcome.host for outcome in ended.values())
    assert not list((tmp_path / "ended").iterdir()), "no file is left there"


SITES_PACE = replace(PROFILE, polling=Polling(interval_s=5.0, settle_s=1.5))
"""As profiles have it: what is seen is often older than what lies in the folders."""


def test_many_trials_run_once_each_with_few_status_calls(
    backends: Backends, tmp_path: Path
) -> None:
    backend = backends.make(COUNTED, profile=SITES_PACE)
    trials = [request(tmp_path, f"trial-{n}") for n in range(16)]
    started = time.monotonic()
    outcomes = run(backend, *trials)
    took_s = time.monotonic() - started
    assert {o.status for o in outcomes} == {TrialState.OK}
    assert [runs(each) for each in trials] == [1] * len(trials)
    calls = backend.tracker.slurm.calls
    assert calls["sbatch"] == len(trials)
    assert calls["squeue"] + calls["sacct"] <= 1 + took_s / (5.0 / HURRY_FACTOR)


def test_many_trials_are_found_again_by_another_object(backends: Backends, tmp_path: Path) -> None:
    trials = [request(tmp_path, f"trial-{n}") for n in range(24)]
    first = backends.make("sleep 1000", profile=SITES_PACE)
    for each in trials:
        first.submit(each)
    until(lambda: all(standing(first, each).job_id for each in trials))
    first.close()
    later = backends.make("sleep 1000", profile=SITES_PACE)
    ends = time.monotonic() + SITES_PACE.polling.settle_s + 1.5
    while time.monotonic() < ends:
        assert all(isinstance(each, TrialProgress) for each in later.poll(trials).values())
        time.sleep(0.1)
    assert later.tracker.slurm.calls["sbatch"] == 0
    for each in trials:
        later.cancel(each.token)
    assert {o.status for o in finish(later, *trials)} == {TrialState.CANCELLED}
    assert later.tracker.slurm.calls["scancel"] <= 3
