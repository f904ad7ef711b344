"""Trials on a real Ray cluster: where they run, how they end, and what goes wrong on the way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from autotune.schemas.choices import TrialState
from evaluators.attempt import attempts_of
from evaluators.cluster.profile import Polling, RayCluster
from evaluators.ray.backend import RayBackend
from evaluators.trial import TrialRequest
from tests.evaluators.slurm.trials import (
    PROFILE,
    QUICK,
    Lines,
    abandoned,
    finish,
    request,
    run,
    standing,
)
from tests.patience import until
from tests.ray_nodes import RayNodes, ray_nodes

__all__ = ["ray_nodes"]

pytestmark = pytest.mark.xdist_group("ray")

FOREVER = "{srun} sleep 98765"
FAILING = "bash -c 'if ((SLURM_PROCID == 2)); then echo bad; exit 7; fi; sleep 98765'"
RAYLET = (
    "p=$$; while ((p > 1)); do read -r -d '' program </proc/$p/cmdline; "
    '[[ $program == */raylet ]] && echo "node $p"; '
    "while read -r key value; do [[ $key == PPid: ]] && p=$value; done </proc/$p/status; done"
)
"""Prints the process that Ray has on each node, which all are on this machine."""
TEXTS = {
    "ranks": "module_path=/opt/x; export module_path; "
    "{srun} bash -c 'echo \"$SLURM_PROCID of $SLURM_NTASKS has $module_path\"'; echo 1 >result",
    "width": "date +%s.%N >began; {srun} sleep 0.3; date +%s.%N >ended; echo 1 >result",
    "ended": FOREVER,
    "failing": f"{{srun}} {FAILING}",
    "found": "echo run; {srun} sleep 1; echo end; echo 1 >result",
    "faulty": f"{RAYLET}; [[ $PWD == *attempt-1 ]] && {{ "
    f"echo 'RuntimeError: CUDA error: uncorrectable ECC error encountered'; exit 1; }}; {QUICK}",
    "again": f"[[ $PWD == *attempt-1 ]] && {{ {FOREVER}; exit; }}; {QUICK}",
}
TEXT = f"case $PWD in {' '.join(f'*/{name}*) {text};;' for name, text in TEXTS.items())} esac"
"""What a trial does follows from the beginning of its name."""


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trials")


@pytest.fixture(scope="module")
def backend(ray_nodes: RayNodes, trials: Path) -> Iterator[RayBackend]:
    """One for all: each has a process that speaks to Ray, and an actor for the folder."""
    made = make_backend(ray_nodes.address, trials)
    yield made
    made.close()


def make_backend(address: str, trials: Path) -> RayBackend:
    ray = RayCluster(address=address, folder=str(trials))
    profile = replace(PROFILE, ray=ray, polling=Polling(command_limit_s=6.0))
    return RayBackend(profile, program=Lines(text=TEXT))


def wait_running(backend: RayBackend, trial: TrialRequest) -> None:
    until(lambda: standing(backend, trial).phase == "running")


def sleepers() -> list[int]:
    """Processes of `FOREVER`, launchers apart."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if process.info["cmdline"] == ["sleep", "98765"]
    ]


def test_ranks_run_on_as_many_nodes_as_the_strategy_has(backend: RayBackend, trials: Path) -> None:
    """Their log, and what the first of them writes, is here in the end."""
    trial = request(trials, "ranks", nodes=2)
    (outcome,) = run(backend, trial)
    assert outcome.status is TrialState.OK, outcome.error
    lines = sorted(outcome.log_tail.split("\n"))
    assert lines == ["", *(f"{rank} of 4 has /opt/x" for rank in range(4))]
    assert outcome.host.count(",") == 1


def test_trials_of_several_widths_share_the_nodes(backend: RayBackend, trials: Path) -> None:
    """Never are there more of them than nodes, and none is left behind."""
    made = [request(trials, f"width-{n}", nodes=width) for n, width in enumerate([1, 2, 3, 1])]
    outcomes = run(backend, *made)
    assert {outcome.status for outcome in outcomes} == {TrialState.OK}

    def at(trial: TrialRequest, name: str) -> float:
        return float((trial.directory / "attempt-1" / name).read_text())

    for each in made:
        beside = [t for t in made if at(t, "began") <= at(each, "began") < at(t, "ended")]
        assert sum(trial.strategy.num_nodes for trial in beside) <= 3


def test_limit_cancellation_and_failing_rank_leave_no_process(
    backend: RayBackend, trials: Path
) -> None:
    """Two of the three run on two nodes, the one that fails after the other."""
    limited = request(trials, "ended-by-limit", nodes=2, time_limit_s=1.0)
    cancelled = request(trials, "ended-by-us")
    failed = request(trials, "failing", nodes=2)
    for each in (limited, cancelled, failed):
        backend.submit(each)
    until(lambda: len(sleepers()) >= 2)
    wait_running(backend, cancelled)
    backend.cancel(cancelled.token)
    outcomes = finish(backend, limited, cancelled, failed)
    assert [(outcome.status, outcome.error) for outcome in outcomes] == [
        (TrialState.TIMEOUT, "it exceeded its time limit of 1 s"),
        (TrialState.CANCELLED, "cancelled"),
        (TrialState.CRASHED, "exit code 7: ['bad']"),
    ]
    assert not sleepers()


def test_too_wide_a_trial_says_what_it_waits_for(backend: RayBackend, trials: Path) -> None:
    trial = request(trials, "wide", nodes=4)
    backend.submit(trial)
    expected = "it needs 4 nodes with 2 CPU each, and Ray has 3"
    until(lambda: standing(backend, trial).reason == expected)
    backend.cancel(trial.token)
    assert [outcome.status for outcome in finish(backend, trial)] == [TrialState.CANCELLED]


def test_another_process_finds_what_a_killed_one_submitted(
    backend: RayBackend, ray_nodes: RayNodes, trials: Path
) -> None:
    """One runs, one waits for its nodes; each is run once, and its log is whole."""
    made = [request(trials, f"found-{n}", nodes=3) for n in range(2)]
    script = (
        "import sys; from tests.evaluators.ray import test_backend as t; t.begin(*sys.argv[1:])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, ray_nodes.address, str(trials)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"running\n"
        process.kill()
    outcomes = run(backend, *made)
    assert [outcome.log_tail for outcome in outcomes] == ["run\nend\n"] * 2
    assert [outcome.status for outcome in outcomes] == [TrialState.OK] * 2


def begin(address: str, folder: str) -> None:
    """Be the process that is killed."""
    backend, trials = make_backend(address, Path(folder)), Path(folder)
    for number in range(2):
        backend.submit(request(trials, f"found-{number}", nodes=3))
    wait_running(backend, request(trials, "found-0", nodes=3))
    print("running", flush=True)
    sys.stdin.read()


def test_a_node_that_dies_is_not_the_trials_fault(
    backend: RayBackend, ray_nodes: RayNodes, trials: Path
) -> None:
    trial = request(trials, "again-elsewhere", nodes=3)
    backend.submit(trial)
    until(lambda: len(sleepers()) == 6)
    ray_nodes.kill_node()
    try:
        until(lambda: len(attempts_of(trial)) == 2)
        assert abandoned(trial)["status"] == "node_fail"
        assert not sleepers()
        until(lambda: standing(backend, trial).reason.endswith("and Ray has 2"))
    finally:
        ray_nodes.start()
    (outcome,) = finish(backend, trial)
    assert outcome.status is TrialState.OK, outcome.error
    assert outcome.duration_s > 0


def test_a_trial_leaves_a_node_with_a_faulty_gpu(backend: RayBackend, trials: Path) -> None:
    trial = request(trials, "faulty")
    (outcome,) = run(backend, trial)
    assert outcome.status is TrialState.OK, outcome.error
    faulty, other = (attempt.log.read_text().split()[1] for attempt in attempts_of(trial))
    assert faulty != other
    (line,) = (trials / "failed-nodes").read_text().splitlines()
    assert line.split()[1] == attempts_of(trial)[0].name
    assert abandoned(trial)["status"] == "node_fail"


def test_a_head_that_dies_is_waited_for(
    backend: RayBackend, ray_nodes: RayNodes, trials: Path
) -> None:
    """What ran is run again once there is one, and nothing is decided before."""
    running, waiting = request(trials, "again-later"), request(trials, "ended-waiting")
    backend.submit(running)
    wait_running(backend, running)
    ray_nodes.kill_head()
    try:
        until(lambda: not sleepers())
        backend.submit(waiting)
        until(lambda: standing(backend, waiting).reason.startswith("Ray does not answer"))
        silent = standing(backend, running)
        assert (silent.phase, silent.reason[:20]) == ("running", "Ray does not answer ")
    finally:
        ray_nodes.start()
    until(lambda: len(attempts_of(running)) == 2)
    assert abandoned(running)["status"] == "lost"
    backend.cancel(waiting.token)
    outcomes = finish(backend, running, waiting)
    assert [outcome.status for outcome in outcomes] == [TrialState.OK, TrialState.CANCELLED]
