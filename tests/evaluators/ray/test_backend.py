"""Trials on a real Ray cluster: where they run, how they end, and what goes wrong on the way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from autotune.schemas.choices import TrialState
from evaluators.attempt import Attempt, abandoned_status, attempts_of
from evaluators.ray.backend import RayBackend
from evaluators.trial import TrialRequest
from tests.evaluators.ray.conftest import MakeBackend
from tests.evaluators.slurm.trials import QUICK, finish, request, run, standing
from tests.patience import until
from tests.ray_nodes import RayNodes

pytestmark = pytest.mark.xdist_group("ray")

FOREVER = "{srun} sleep 98765"
FIRST_FOREVER = f"[[ $PWD == *attempt-1 ]] && {{ {FOREVER}; exit; }}; {QUICK}"
TIMES = "date +%s.%N >began; {srun} sleep 0.3; date +%s.%N >ended; echo 1 >result"


def wait_running(backend: RayBackend, trial: TrialRequest) -> None:
    until(lambda: standing(backend, trial).phase == "running")


def sleepers() -> list[int]:
    """Processes of `FOREVER`, launchers apart."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if process.info["cmdline"] == ["sleep", "98765"]
    ]


def test_ranks_run_on_as_many_nodes_as_the_strategy_has(
    make_backend: MakeBackend, tmp_path: Path
) -> None:
    """Their log, and what the first of them writes, is here in the end."""
    text = (
        "module_path=/opt/x; export module_path; "
        "{srun} bash -c 'echo \"$SLURM_PROCID of $SLURM_NTASKS has $module_path\"'; "
        "echo 0.25 >result"
    )
    trial = request(tmp_path, nodes=2)
    (outcome,) = run(make_backend(text), trial)
    assert outcome.status is TrialState.OK, outcome.error
    lines = sorted(outcome.log_tail.split("\n"))
    assert lines == ["", *(f"{rank} of 4 has /opt/x" for rank in range(4))]
    assert outcome.host.count(",") == 1


def test_trials_of_several_widths_share_the_nodes(
    make_backend: MakeBackend, tmp_path: Path
) -> None:
    """Never are there more of them than nodes, and none is left behind."""
    widths = [1, 2, 3, 1]
    trials = [request(tmp_path, f"trial-{n}", nodes=width) for n, width in enumerate(widths)]
    outcomes = run(make_backend(TIMES), *trials)
    assert {outcome.status for outcome in outcomes} == {TrialState.OK}

    def at(trial: TrialRequest, name: str) -> float:
        return float((trial.directory / "attempt-1" / name).read_text())

    for each in trials:
        beside = [t for t in trials if at(t, "began") <= at(each, "began") < at(t, "ended")]
        assert sum(trial.strategy.num_nodes for trial in beside) <= 3


def test_a_limit_a_cancellation_and_a_failing_rank_leave_no_process(
    make_backend: MakeBackend, tmp_path: Path
) -> None:
    """Two of the three run on two nodes, the one that fails after the other."""
    failing = "bash -c 'if ((SLURM_PROCID == 2)); then echo bad; exit 7; fi; sleep 98765'"
    text = f"[[ $PWD == *failing* ]] && {{ {{srun}} {failing}; exit; }}; {FOREVER}"
    backend = make_backend(text)
    limited = request(tmp_path, "limited", nodes=2, time_limit_s=1.0)
    cancelled = request(tmp_path, "cancelled")
    failed = request(tmp_path, "failing", nodes=2)
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


def test_what_was_fetched_of_a_log_takes_no_room_on_its_node(
    make_backend: MakeBackend, tmp_path: Path
) -> None:
    go_on = tmp_path / "go_on"
    printing = "yes 'nothing that tells a figure' | head -c 8000000"
    waiting = f"while [[ ! -e {go_on} ]]; do sleep 0.1; done"
    trial = request(tmp_path)
    backend = make_backend(f"{printing}; {waiting}; echo 1 >result")
    backend.submit(trial)
    place = "autotune-*/*/attempt-1/trial.log"
    until(
        lambda: any(
            there.stat().st_size == 8_000_000 and 512 * there.stat().st_blocks < 6_500_000
            for there in tmp_path.glob(place)
        )
    )
    go_on.touch()
    (outcome,) = finish(backend, trial)
    assert outcome.status is TrialState.OK, outcome.error
    fetched = (trial.directory / "attempt-1" / "trial.log").read_bytes()
    assert len(fetched) == 8_000_000
    assert b"\0" not in fetched


def test_too_wide_a_trial_says_what_it_waits_for(make_backend: MakeBackend, tmp_path: Path) -> None:
    backend, trial = make_backend(), request(tmp_path, nodes=4)
    backend.submit(trial)
    expected = "it needs 4 nodes with 2 CPU each, and Ray has 3"
    until(lambda: standing(backend, trial).reason == expected)
    backend.cancel(trial.token)
    assert [outcome.status for outcome in finish(backend, trial)] == [TrialState.CANCELLED]


def test_another_process_finds_what_one_that_was_killed_had_submitted(
    make_backend: MakeBackend, ray_nodes: RayNodes, tmp_path: Path
) -> None:
    """One runs, one waits for its nodes; each is run once, and its log is whole."""
    text = "echo run; {srun} sleep 1; echo end; echo 1 >result"
    script = (
        "import sys; from pathlib import Path\n"
        "from tests.evaluators.slurm.trials import *\n"
        "from evaluators.cluster.profile import RayCluster\n"
        "from evaluators.ray.backend import RayBackend\n"
        "profile = replace(PROFILE, ray=RayCluster(address=sys.argv[1], folder=sys.argv[2]))\n"
        "backend = RayBackend(profile, program=Lines(text=sys.argv[3]))\n"
        "trials = [request(Path(sys.argv[2]), f'trial-{n}', nodes=3) for n in range(2)]\n"
        "for trial in trials: backend.submit(trial)\n"
        "until(lambda: standing(backend, trials[0]).phase == 'running')\n"
        "print('running', flush=True)\n"
        "while True: time.sleep(1)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, ray_nodes.address, str(tmp_path), text],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    ) as process:
        assert process.stdout
        process.stdout.readline()
        process.kill()
    trials = [request(tmp_path, f"trial-{n}", nodes=3) for n in range(2)]
    outcomes = run(make_backend(text), *trials)
    assert [outcome.log_tail for outcome in outcomes] == ["run\nend\n"] * 2
    assert [outcome.status for outcome in outcomes] == [TrialState.OK] * 2


def test_a_node_that_dies_is_not_the_trials_fault(
    make_backend: MakeBackend, ray_nodes: RayNodes, tmp_path: Path
) -> None:
    backend, trial = make_backend(FIRST_FOREVER), request(tmp_path, nodes=3)
    backend.submit(trial)
    until(lambda: len(sleepers()) == 6)
    ray_nodes.kill_node()
    try:
        until(lambda: len(attempts_of(trial)) == 2)
        first = Attempt(request=trial, number=1)
        assert abandoned_status(first.folder) == "node_fail"
        assert not sleepers()
        until(lambda: standing(backend, trial).reason.endswith("and Ray has 2"))
    finally:
        ray_nodes.start()
    (outcome,) = finish(backend, trial)
    assert outcome.status is TrialState.OK, outcome.error
    assert outcome.duration_s > 0


@pytest.fixture
def other_nodes() -> Iterator[RayNodes]:
    with RayNodes(1) as nodes:
        yield nodes


def test_a_head_that_dies_is_waited_for(
    make_backend: MakeBackend, other_nodes: RayNodes, tmp_path: Path
) -> None:
    """What ran is run again once there is one, and nothing is decided before."""
    backend = make_backend(FIRST_FOREVER, nodes=other_nodes)
    running, waiting = request(tmp_path, "running"), request(tmp_path, "waiting")
    backend.submit(running)
    wait_running(backend, running)
    other_nodes.kill_head()
    until(lambda: not sleepers())
    backend.submit(waiting)
    until(lambda: standing(backend, waiting).reason.startswith("Ray does not answer"))
    silent = standing(backend, running)
    assert (silent.phase, silent.reason[:20]) == ("running", "Ray does not answer ")
    other_nodes.start()
    until(lambda: len(attempts_of(running)) == 2)
    assert abandoned_status(Attempt(request=running, number=1).folder) == "lost"
    backend.cancel(waiting.token)
    outcomes = finish(backend, running, waiting)
    assert [outcome.status for outcome in outcomes] == [TrialState.OK, TrialState.CANCELLED]
