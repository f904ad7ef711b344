"""What goes wrong between us, Slurm and the nodes; each trial still ends once, and rightly."""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from autotune.files import write_whole
from autotune.schemas.choices import TrialState
from evaluators.attempt import Attempt, attempts_of
from evaluators.failed_nodes import nodes_to_exclude, note_failed_nodes
from evaluators.slurm.attempt_files import (
    read_attempt_files,
    write_intent,
)
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import MakeCluster
from tests.evaluators.slurm.trials import (
    COUNTED,
    FAULTY_N01,
    NODE_FAILS_FIRST,
    PROFILE,
    REFUSED_FIRST,
    SLOW_FIRST,
    Backends,
    abandoned,
    finish,
    request,
    run,
    runs,
    standing,
    wait_begun,
)
from tests.patience import until

pytestmark = pytest.mark.xdist_group("slurm")


def test_an_intent_written_with_the_clock_ahead_is_submitted(
    backends: Backends, slurm: Cluster, tmp_path: Path
) -> None:
    assert slurm.nodes
    trial_request = request(tmp_path, "trial-0")
    folder = tmp_path / "trial-0" / "attempt-1"
    folder.mkdir(parents=True)
    write_intent(folder, name="trial-0.1", at=time.time() + 5000.0)
    (outcome,) = run(backends.make(COUNTED), trial_request)
    assert outcome.status == TrialState.OK
    assert runs(trial_request) == 1


def test_an_unsent_job_is_sent_once_the_clock_is_no_longer_ahead(
    backends: Backends, slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert slurm.nodes
    trial_request, commands, clock = request(tmp_path, "trial-0"), tmp_path / "bin", time.time
    commands.mkdir()
    write_whole(
        commands / "sbatch", f"#!/bin/bash\ntouch {commands}/sent\nkill -9 $$\n", executable=True
    )
    backend = backends.make(COUNTED)
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time", lambda: clock() + 5000.0)
        ahead.setenv("PATH", f"{commands}:{os.environ['PATH']}")
        backend.submit(trial_request)
        until((commands / "sent").exists)
    (outcome,) = finish(backend, trial_request)
    assert outcome.status == TrialState.OK
    assert runs(trial_request) == 1


def test_a_client_that_is_killed_in_flight_leaves_one_run(
    backends: Backends, slurm: Cluster, tmp_path: Path
) -> None:
    backend = backends.make(COUNTED)
    trials = [request(tmp_path, f"trial-{n}") for n in range(8)]
    killed, moments = 0, cycle((0.004, 0.002, 0.0))  # an sbatch may be done sooner than the first
    for each in trials:
        backend.submit(each)
    ends = time.monotonic() + 1.5
    while not killed or time.monotonic() < ends:
        killed += kill_clients(after_s=next(moments))
    outcomes = finish(backend, *trials)
    assert killed
    assert {o.status for o in outcomes} == {TrialState.OK}
    assert [runs(each) for each in trials] == [1] * 8
    until(lambda: not slurm.jobs())


def kill_clients(*, after_s: float) -> int:
    """Kill each sbatch that this process has started, a moment later; return how many."""
    killed = 0
    for pid in children():
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            if name == "sbatch":
                time.sleep(after_s)
                os.kill(pid, signal.SIGKILL)
                killed += 1
        except (OSError, ProcessLookupError):
            continue
    return killed


def children() -> list[int]:
    children: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        try:
            children += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return children


def test_a_rolled_back_controller_is_set_right(
    backends: Backends, slurm: Cluster, tmp_path: Path
) -> None:
    """One job ended and runs again, one vanished, and its id is given to somebody else's job."""
    backend = backends.make(COUNTED)
    before, ended, vanished = (request(tmp_path, name) for name in ("before", "ended", "vanished"))
    began = time.time()
    run(backend, before)
    slurm.wait_saved(since=began)
    first = run(backend, ended)[0]
    backend.submit(vanished)
    until(
        lambda: (
            backend.poll([vanished])
            and read_attempt_files(Attempt(request=vanished, number=1).folder).job_id
        )
    )
    slurm.kill_controller()
    slurm.start_controller()
    other = slurm.command(
        "sbatch", "--parsable", "--job-name=foreign", "--output=/dev/null", "--wrap=sleep 1000"
    ).strip()
    outcome = finish(backend, vanished)[0]
    assert outcome.status is TrialState.OK
    assert backend.poll([ended])[ended.token] == first
    assert runs(ended) == 1
    assert other in slurm.jobs(), "the job of somebody else was left alone"
    slurm.command("scancel", other)


def test_a_node_that_failed_twice_is_left_out(backends: Backends, tmp_path: Path) -> None:
    for name in ("first.1", "second.1"):
        note_failed_nodes(tmp_path, name=name, nodes=["n01"])
    (outcome,) = run(backends.make(), request(tmp_path))
    assert outcome.host == "n02"


def test_a_faulty_gpu_without_another_node_is_no_layouts(
    backends: Backends, slurm: Cluster, tmp_path: Path
) -> None:
    (outcome,) = run(backends.make(FAULTY_N01), request(tmp_path, nodes=len(slurm.nodes)))
    assert outcome.status is TrialState.NODE_FAIL
    assert outcome.error
    assert outcome.error.endswith("(without n01, which failed)")


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        (REFUSED_FIRST, "lost", "Slurm did not start its step: Invalid job id"),
        (NODE_FAILS_FIRST, "node_fail", "one of its nodes failed"),
    ],
)
def test_what_srun_blames_on_slurm_is_tried_again(
    backends: Backends, tmp_path: Path, text: str, status: str, reason: str
) -> None:
    trial = request(tmp_path)
    (outcome,) = run(backends.make(text), trial)
    assert outcome.status is TrialState.OK
    first, second = attempts_of(trial)
    assert abandoned(trial)["status"] == status
    assert abandoned(trial)["reason"].startswith(reason)
    assert "srun: error" not in second.log.read_text()
    assert not list(first.ended_folder.iterdir()), "nobody waits for the end of either"
    assert nodes_to_exclude(tmp_path, failures=1) == (("n05",) if status == "node_fail" else ())


def test_a_preempted_trial_runs_again(backends: Backends, slurm: Cluster, tmp_path: Path) -> None:
    scavenging = replace(
        PROFILE, slurm=replace(PROFILE.slurm, partition="scavenge", exclusive=True)
    )
    backend = backends.make(SLOW_FIRST, profile=scavenging)
    trial = request(tmp_path, nodes=8)
    backend.submit(trial)
    wait_begun(backend, trial)
    slurm.command(
        "sbatch",
        "--partition=urgent",
        "--nodes=8",
        "--exclusive",
        "--output=/dev/null",
        "--wrap=sleep 1",
    )
    (outcome,) = finish(backend, trial)
    assert outcome.status is TrialState.OK
    assert abandoned(trial)["status"] == "preempted"


@pytest.mark.soak
def test_a_failed_node_is_seen_where_no_accounting_tells_of_it(
    make_slurm: MakeCluster, tmp_path: Path
) -> None:
    """The queue forgets the job two seconds after its end, while no service is there."""
    cluster = make_slurm(nodes=2, options={"MinJobAge": "2"})
    with Backends(cluster) as backends:
        backend, trial = backends.make("sleep 1000"), request(tmp_path)
        backend.submit(trial)
        wait_begun(backend, trial)
        node = until(lambda: standing(backend, trial).host)
        backend.close()
        cluster.down(node)
        name = Attempt(request=trial, number=1).name
        until(lambda: name not in cluster.command("squeue", "--states=all", "--format=%j"))
        (outcome,) = finish(backends.make(), trial)
        assert outcome.status is TrialState.OK
        assert outcome.host != node
        assert abandoned(trial)["status"] == "node_fail"


def test_a_search_restarted_elsewhere_ignores_the_first(
    backends: Backends, slurm: Cluster, tmp_path: Path
) -> None:
    """The same token in another folder, while a job of the first one runs."""
    backend = backends.make(SLOW_FIRST)
    first, second = request(tmp_path / "first"), request(tmp_path / "second")
    backend.submit(first)
    wait_begun(backend, first)
    other = backends.make()
    (outcome,) = run(other, second)
    assert outcome.status is TrialState.OK
    until(lambda: len(slurm.jobs()) == 1)
    until(lambda: standing(backend, first).phase == "running")


def test_an_older_job_of_the_same_name_is_not_taken_for_ours(
    backends: Backends, tmp_path: Path
) -> None:
    """Its folder was removed, and the same trial asked for again."""
    trial = request(tmp_path)
    backend = backends.make("exit 3")
    assert run(backend, trial)[0].status is TrialState.CRASHED
    shutil.rmtree(trial.directory)
    time.sleep(2.5)
    (again,) = run(backends.make(), trial)
    assert again.status is TrialState.OK


def test_two_jobs_of_one_attempt_run_it_once(
    backends: Backends, slurm: Cluster, tmp_path: Path
) -> None:
    backend = backends.make(COUNTED)
    trial = request(tmp_path)
    backend.submit(trial)
    until(lambda: backend.poll([trial]) and (trial.directory / "attempt-1" / "job.json").exists())
    for _ in range(3):
        slurm.command("sbatch", str(trial.directory / "attempt-1" / "job.sh"))
    (outcome,) = finish(backend, trial)
    assert outcome.status is TrialState.OK
    until(lambda: not slurm.jobs())
    assert runs(trial) == 1
