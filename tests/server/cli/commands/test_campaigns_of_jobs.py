"""Trials that wait, run and end in a queue, as `show` and `watch` tell of them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.trials import Trial
from server.settings import Settings
from tests.server.cli.conftest import Autotune, Ran
from tests.server.dashboard.campaigns import Campaigns
from tests.serving import COMMAND, Served, environment, serving

FREE_NODES = "waiting for free nodes (Resources)"
PRIORITY = "behind jobs of higher priority (Priority)"


@pytest.fixture(scope="module")
def resting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service without a runner: its campaigns stand as the tests put them."""
    with serving(tmp_path_factory.mktemp("resting"), "--no-runner") as served:
        yield served


@pytest.fixture
def campaigns(resting: Served) -> Iterator[Campaigns]:
    made = Campaigns(Settings(data_dir=resting.data_dir))
    yield made
    made.store.close()


@pytest.fixture
def queue(campaigns: Campaigns) -> Campaign:
    """A running campaign of jobs."""
    campaign = campaigns.create(evaluator="slurm", slurm={"profile": "frontier"})
    campaigns.move(campaign, CampaignState.RUNNING)
    return campaign


def started(campaigns: Campaigns, campaign: Campaign, count: int) -> list[Trial]:
    return campaigns.start(campaign, campaigns.strategies(campaign, count, fitting=True))


def show(resting: Served, campaign: Campaign, *arguments: str) -> Ran:
    return Autotune().done("show", str(campaign.id), *arguments, "--url", resting.url)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "220")


def test_show_tells_waiting_from_running(
    resting: Served, campaigns: Campaigns, queue: Campaign
) -> None:
    waiting, running = started(campaigns, queue, 2)
    campaigns.stand([waiting], phase="waiting", reason=FREE_NODES, job_id="41")
    campaigns.stand([running], phase="running", job_id="40", host="n[01-02]")
    lines = show(resting, queue).out.splitlines()
    first, *_ = [line for line in lines if line.startswith(" 1 ")]
    second, *_ = [line for line in lines if line.startswith(" 2 ")]
    assert "waiting" in first.split()
    assert FREE_NODES in first
    assert " 41 " in first
    assert "running" in second.split()
    assert any("2 open (1 of them waiting for nodes)" in line for line in lines)
    assert any("slurm: profile frontier, sbatch (measured)" in line for line in lines)
    words = " ".join(show(resting, queue, "--trial", "1").out.split())
    assert f"state waiting: {FREE_NODES}" in words
    assert "job 41" in words
    assert "host n[01-02]" in " ".join(show(resting, queue, "--trial", "2").out.split())


def test_show_gives_energy_or_says_why_there_is_none(
    resting: Served, campaigns: Campaigns, queue: Campaign
) -> None:
    sampled, unsampled = started(campaigns, queue, 2)
    assert "J/token" not in show(resting, queue).out
    note = "neither nvidia-smi nor rocm-smi on n01"
    campaigns.end(
        *(queue, sampled, TrialState.CRASHED),
        gpu_joules_per_token=0.0421,
        energy_note="nvidia-smi on 2 nodes",
        error="x",
    )
    campaigns.end(queue, unsampled, TrialState.CRASHED, energy_note=note, error="x")
    assert "J/token" in show(resting, queue).out
    first = " ".join(show(resting, queue, "--trial", "1").out.split())
    assert "0.0421 J/token (nvidia-smi on 2 nodes)" in first
    second = " ".join(show(resting, queue, "--trial", "2").out.split())
    assert f"energy of the GPUs {note}" in second


def test_show_filters_the_states_of_a_queue(
    resting: Served, campaigns: Campaigns, queue: Campaign
) -> None:
    states = (TrialState.PREEMPTED, TrialState.REFUSED)
    for trial, state in zip(started(campaigns, queue, 2), states, strict=True):
        campaigns.end(queue, trial, state, error=f"was {state}")
    out = show(resting, queue, "--state", "preempted").out
    assert "was preempted" in out
    assert "was refused" not in out


def test_watch_says_once_why_nothing_runs(
    resting: Served, campaigns: Campaigns, queue: Campaign
) -> None:
    trials = started(campaigns, queue, 3)
    campaigns.stand(trials[:1], phase="waiting", reason=FREE_NODES)
    with subprocess.Popen(
        [*COMMAND, "watch", str(queue.id), "--url", resting.url],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as watching:
        assert watching.stderr is not None
        # Events tell how a trial stands when they are read: so each is told before the next.
        assert f"3 trials not started yet: {FREE_NODES}" in watching.stderr.readline()
        campaigns.stand(trials[1:2], phase="waiting", reason=FREE_NODES)
        campaigns.stand(trials[2:], phase="waiting", reason=PRIORITY)
        news = watching.stderr.readline()
        assert f"3 trials not started yet: 2 × {FREE_NODES}, 1 × {PRIORITY}" in news
        campaigns.stand(trials[2:], phase="waiting", reason=FREE_NODES)
        campaigns.stand(trials[:1], phase="running")
        campaigns.end(queue, trials[0], TrialState.TIMEOUT, error="the time limit")
        assert "1/30 · 2 waiting · 1 failed" in watching.stderr.readline()
        for trial in trials[1:]:
            campaigns.end(queue, trial, TrialState.CANCELLED, duration_s=0.0)
        campaigns.move(queue, CampaignState.CANCELLED)
        assert "not started yet" not in watching.stderr.read()
    assert watching.returncode == 1
