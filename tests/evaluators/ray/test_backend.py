"""Trials on a real Ray cluster: where they run, how they end, and what goes wrong on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from evaluators.cluster.profile import Polling, RayCluster
from evaluators.ray.backend import RayBackend
from evaluators.trial import TrialRequest
from tests.evaluators.slurm.trials import (
    PROFILE,
    QUICK,
    Lines,
    finish,
    request,
    run,
    standing,
)
from tests.patience import until
from tests.ray_nodes import RayNodes, ray_nodes

__all__ = ["ray_nodes"]

pytestmark = pytest.mark.xdist_group("ray")

TEXTS = {
    "ranks": "module_path=/opt/x; export module_path; "
    "{srun} bash -c 'echo \"$SLURM_PROCID of $SLURM_NTASKS has $module_path\"'; echo 1 >result",
    "width": "date +%s.%N >began; {srun} sleep 0.3; date +%s.%N >ended; echo 1 >result",
    "wide": QUICK,
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


def test_too_wide_a_trial_says_what_it_waits_for(backend: RayBackend, trials: Path) -> None:
    trial = request(trials, "wide", nodes=4)
    backend.submit(trial)
    expected = "it needs 4 nodes with 2 CPU each, and Ray has 3"
    until(lambda: standing(backend, trial).reason == expected)
    backend.cancel(trial.token)
    assert [outcome.status for outcome in finish(backend, trial)] == [TrialState.CANCELLED]
