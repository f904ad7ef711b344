"""Trials that run: side by side, cancelled, found again, and when a node or the scheduler fails."""

from __future__ import annotations

from pathlib import Path

from autotune.schemas.choices import TrialState
from evaluators.attempt import attempts_of
from tests.evaluators.backends.conftest import on
from tests.evaluators.backends.places import PLACES, InAllocation, Jobs, Place, Remote
from tests.evaluators.slurm.trials import abandoned, finish, run, standing
from tests.full_disk import full_disk
from tests.patience import until

REMOTE = tuple(name for name, place in PLACES.items() if issubclass(place, Remote))
everywhere, remotely = on(*PLACES), on(*REMOTE)


@everywhere
def test_trials_run_side_by_side_and_one_is_cancelled(place: Place) -> None:
    """A cancelled trial leaves no process, and stays cancelled for a backend that is started later.
    What was never submitted is unknown, and may be cancelled."""
    backend = place.backend()
    held, other, unknown = (place.trial(token) for token in ("held", "ok", "unknown"))
    backend.cancel(unknown.token)
    backend.submit(held)
    until(lambda: place.begun(held), "it runs")
    until(lambda: standing(backend, held).phase == "running", "it is said to run")
    backend.submit(other)
    place.release(other)
    (outcome,) = finish(backend, other)
    assert outcome.status is TrialState.OK, outcome.error
    assert standing(backend, held).phase == "running"
    for _ in range(2):
        backend.cancel(held.token)
    (cancelled,) = finish(backend, held)
    assert cancelled.status is TrialState.CANCELLED
    assert str(cancelled.error).startswith("cancelled")
    assert cancelled.measurements == ()
    until(lambda: not place.processes(held), "its processes have gone")
    polled = [held, other, unknown]
    assert place.backend().poll(polled) == {held.token: cancelled, other.token: outcome}


@remotely
def test_a_new_backend_finds_what_a_killed_one_submitted(place: Remote) -> None:
    """One runs on, and nobody saw the end of the other; each is run once, and its log is whole."""
    held, ended = trials = [place.trial("held", nodes=2), place.trial("ok")]
    with place.another_owner(held.token, ended.token):
        until(lambda: place.begun(held), "it runs")
        until(lambda: len(place.nodes_of(ended)) == 4, "both of its starts have begun")
    until(lambda: not place.processes(ended), "it has ended")
    backend = place.backend()
    for trial in trials:
        backend.submit(trial)
    until(lambda: standing(backend, held).phase == "running", "it is found")
    place.release(held)
    for trial, outcome in zip(trials, finish(backend, *trials), strict=True):
        assert outcome.status is TrialState.OK, outcome.error
        assert len(attempts_of(trial)) == 1
        nodes = trial.strategy.num_nodes
        assert len(set(place.nodes_of(trial))) == nodes
        for rank in range(2 * nodes):
            line = f"rank {rank} of {2 * nodes}"
            assert outcome.log_tail.count(line) == 2, "a start for each GAS"


@on("sbatch")
def test_a_trial_that_was_marked_cancelled_is_ended_later(place: Remote) -> None:
    """Its backend was gone before it could end it."""
    trial = place.trial("held", nodes=2)
    with place.another_owner(trial.token):
        until(lambda: place.begun(trial), "it runs")
    (trial.directory / "cancelled").touch()
    (outcome,) = finish(place.backend(), trial)
    assert outcome.status is TrialState.CANCELLED
    until(lambda: not place.processes(trial), "its processes have gone")


@remotely
def test_a_failed_node_is_not_the_trials_fault(place: Remote) -> None:
    """It is attempted again, elsewhere, and the node is remembered."""
    trial, backend = place.trial("again", nodes=3), place.backend()
    backend.submit(trial)
    until(lambda: backend.poll([trial]) and place.begun(trial), "it runs")
    lost = place.lose_node(trial)
    try:
        until(lambda: backend.poll([trial]) and len(attempts_of(trial)) == 2, "it begins again")
        assert abandoned(trial)["status"] == "node_fail"
    finally:
        place.restore()
    (outcome,) = finish(backend, trial)
    assert outcome.status is TrialState.OK, outcome.error
    assert outcome.duration_s > abandoned(trial)["duration_s"]
    assert lost not in place.nodes_of(trial, 2)
    if isinstance(place, Jobs):  # Ray knows no name of a node that is gone
        assert attempts_of(trial)[0].name in (place.folder / "failed-nodes").read_text()


@remotely
def test_a_node_with_a_faulty_gpu_is_left(place: Remote) -> None:
    trial, backend = place.trial("faulty"), place.backend()
    (outcome,) = run(backend, trial)
    assert outcome.status is TrialState.OK, outcome.error
    assert abandoned(trial)["status"] == "node_fail"
    assert "uncorrectable ECC error" in abandoned(trial)["reason"]
    first, second = attempts_of(trial)
    (line,) = (place.folder / "failed-nodes").read_text().splitlines()
    assert line.split()[1] == first.name
    assert set(place.nodes_of(trial, 1)).isdisjoint(place.nodes_of(trial, 2))
    assert "uncorrectable" not in second.log.read_text()


@remotely
def test_a_scheduler_that_is_away_costs_no_trial(place: Remote) -> None:
    """What waits says so; what runs goes on, or runs again where Ray died with it."""
    running, waiting, doomed = (place.trial(token) for token in ("held-1", "held-2", "held-3"))
    backend = place.backend()
    for trial in (running, doomed):
        backend.submit(trial)
    for trial in (running, doomed):
        until(lambda: place.begun(trial), "it runs")  # noqa: B023
        until(lambda: standing(backend, trial).phase == "running", "and says so")  # noqa: B023
    place.silence()
    try:
        backend.submit(waiting)
        backend.cancel(doomed.token)
        until(lambda: " does not answer" in standing(backend, waiting).reason, "it waits")
        if not isinstance(place, InAllocation):  # whose processes are on this machine
            until(lambda: " does not answer" in standing(backend, running).reason, "nobody knows")
        assert standing(backend, running).phase == "running"
    finally:
        place.restore()
    for trial in (running, waiting):
        place.release(trial)
    outcomes = finish(backend, running, waiting, doomed)
    assert [outcome.status.value for outcome in outcomes] == ["ok", "ok", "cancelled"]
    if isinstance(place, InAllocation):
        assert outcomes[0].job_id == outcomes[1].job_id, "the allocation lives on"


@remotely
def test_a_trial_waits_for_room_on_the_disk(place: Remote, tmp_path: Path) -> None:
    with full_disk(tmp_path / "full", inodes=1000) as disk:
        disk.make_room()
        place.folder = disk.folder
        first, second = (place.trial(token) for token in ("ok-1", "ok-2"))
        backend = place.backend()
        run(backend, first)
        disk.fill()
        backend.submit(second)
        until(lambda: "No space left on device" in standing(backend, second).reason, "it waits")
        disk.make_room()
        (outcome,) = finish(backend, second)
        assert outcome.status is TrialState.OK, outcome.error
        place.ends.close()
