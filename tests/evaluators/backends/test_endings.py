"""How trials end, at each place: all are submitted at once, and each test looks at one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from evaluators.trial import Backend, TrialOutcome, TrialRequest
from tests.evaluators.backends.conftest import on
from tests.evaluators.backends.places import PLACES, Bundled, Place, Scripted, Simulated
from tests.evaluators.slurm.trials import finish, run
from tests.patience import until

SCRIPTED = tuple(name for name, place in PLACES.items() if issubclass(place, Scripted))
KINDS = ("ok", "oom", "crash", "killed", "hang", "slow", "agreed", "refused")
WITHOUT = {
    "simulated": {"killed", "refused"},
    # It crashes when its processes are killed: tests/evaluators/local.
    "bundled": {"crash", "killed", "refused"},
}


@dataclass(frozen=True)
class Ended:
    place: Place
    backend: Backend
    trials: Mapping[str, TrialRequest]
    outcomes: Mapping[str, TrialOutcome]


@pytest.fixture(scope="module")
def ended(shared_place: Place) -> Ended:
    """One trial of each kind, of two ranks; in the end nothing runs on."""
    place, backend = shared_place, shared_place.backend()
    kinds = [kind for kind in KINDS if kind not in WITHOUT.get(place.name, ())]
    trials = {kind: place.trial(kind) for kind in kinds}
    if isinstance(place, Bundled):  # each of its ranks takes a core
        return Ended(place, backend, trials, {k: run(backend, t)[0] for k, t in trials.items()})
    for trial in trials.values():
        backend.submit(trial)
    if isinstance(place, Simulated):
        for trial in trials.values():
            place.release(trial)
    outcomes = dict(zip(kinds, finish(backend, *trials.values()), strict=True))
    return Ended(place, backend, trials, outcomes)


everywhere = on(*PLACES, fixture="shared_place")
with_a_script = on(*SCRIPTED, fixture="shared_place")


@everywhere
def test_a_trial_reports_all_that_it_measured(ended: Ended) -> None:
    outcome, trial = ended.outcomes["ok"], ended.trials["ok"]
    assert outcome.status is TrialState.OK, outcome.error
    assert outcome.error is None
    assert outcome.simulated is isinstance(ended.place, Simulated)
    assert [m.gradient_accumulation_steps for m in outcome.measurements] == [1, 2]
    times = [m.iteration_times_s for m in outcome.measurements]
    assert [len(each) for each in times] == [3, 3]
    assert outcome.duration_s > 0
    assert outcome.started_at.utcoffset() is not None
    assert all(0 < peak < trial.machine.memory_gib for peak in outcome.peak_memory_gib)
    if isinstance(ended.place, Bundled):
        assert set(outcome.versions) == {"python", "torch", "deepspeed"}
        assert 2 < (outcome.loss or 0) < 4
        assert outcome.first_losses[-1] == outcome.loss
    assert len(outcome.peak_memory_gib) == (1 if outcome.simulated else 2)
    assert outcome.log_path is not None
    log = Path(outcome.log_path).read_text()
    assert log.rstrip().endswith(outcome.log_tail.rstrip())
    assert "iteration" in log or "[6/6]" in log
    if isinstance(ended.place, Scripted):
        assert times[0] == pytest.approx((0.01, 0.01, 0.01), abs=0.5)
        assert outcome.peak_memory_gib == (300 / 1024, 310 / 1024)
        assert outcome.loss == pytest.approx(10 / 6, abs=1e-4)
        assert outcome.versions["adapter"].startswith("steered ")
        assert outcome.host
        assert outcome.energy_note


@everywhere
def test_out_of_memory_is_not_a_crash(ended: Ended) -> None:
    outcome = ended.outcomes["oom"]
    assert outcome.status is TrialState.OOM, outcome.error
    texts = {"simulated": "64 GiB", "bundled": "allocate"}
    expected = texts.get(ended.place.name, "CUDA out of memory. Tried to allocate 2.00 GiB")
    assert expected in str(outcome.error)
    assert outcome.measurements == ()


@on(*SCRIPTED, "simulated", fixture="shared_place")
def test_the_first_cause_of_a_crash_is_its_reason(ended: Ended) -> None:
    outcome = ended.outcomes["crash"]
    assert outcome.status is TrialState.CRASHED
    texts = {"simulated": "pipeline_parallel"}
    expected = texts.get(ended.place.name, "exit code 3; it last printed: the data is not what")
    assert expected in str(outcome.error)
    assert outcome.measurements == ()


@with_a_script
def test_a_killed_rank_is_a_crash_by_its_signal(ended: Ended) -> None:
    outcome = ended.outcomes["killed"]
    assert outcome.status is TrialState.CRASHED
    assert "ended by SIGKILL (the host's memory may have been used up" in str(outcome.error)


@everywhere
def test_a_trial_that_hangs_ends_at_its_time_limit(ended: Ended) -> None:
    outcome = ended.outcomes["hang"]
    assert outcome.status is TrialState.TIMEOUT
    texts = {"simulated": "not finished within 5 s"}
    assert texts.get(ended.place.name, "time limit of 5 s") in str(outcome.error)
    assert outcome.duration_s >= 5
    until(lambda: not ended.place.processes(ended.trials["hang"]), "its processes have gone")


@everywhere
def test_a_slow_trial_is_given_up(ended: Ended) -> None:
    outcome = ended.outcomes["slow"]
    assert outcome.status is TrialState.OK, outcome.error
    [only] = outcome.measurements
    assert only.gradient_accumulation_steps == 1
    assert 2 <= len(only.iteration_times_s) < 10_000
    assert outcome.log_path is not None
    log = Path(outcome.log_path).read_text()  # the trainer prints on until it is ended
    assert "given up: no iteration at GAS 1" in log
    until(lambda: not ended.place.processes(ended.trials["slow"]), "its processes have gone")


@everywhere
def test_a_trial_whose_times_agree_ends_early(ended: Ended) -> None:
    outcome = ended.outcomes["agreed"]
    assert outcome.status is TrialState.OK, outcome.error
    assert [m.gradient_accumulation_steps for m in outcome.measurements] == [1, 2]
    assert all(2 <= len(m.iteration_times_s) < 10_000 for m in outcome.measurements)


@with_a_script
def test_what_the_adapter_refuses_is_never_started(ended: Ended) -> None:
    assert "the script has no such choice" in str(ended.outcomes["refused"].error)
    assert not ended.place.begun(ended.trials["refused"])


@everywhere
def test_a_result_is_final_and_never_run_again(ended: Ended) -> None:
    """Not by the backend that ran it, and not by a new one."""
    trials = list(ended.trials.values())
    logs = [Path(str(o.log_path)) for o in ended.outcomes.values() if o.log_path]
    before = [(log.stat().st_mtime_ns, log.stat().st_size) for log in logs if log.exists()]
    for backend in (ended.backend, ended.place.backend()):
        for trial in trials:
            backend.submit(trial)
            backend.cancel(trial.token)
        found = backend.poll(trials)
        assert {kind: found[ended.trials[kind].token] for kind in ended.trials} == ended.outcomes
    assert [(log.stat().st_mtime_ns, log.stat().st_size) for log in logs if log.exists()] == before
