"""From a REST call to the recommendation, with every trial a job of a real Slurm.

REST -> runner -> DeepHyper -> sbatch or a pilot's srun -> a program -> SQL -> REST. That the
bundled trainer trains there is for the guide of Slurm to show, and for tests of that program.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.recommendations import Recommendation
from autotune.schemas.trials import Trial
from server.app import create_app
from server.settings import Settings
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import slurm
from tests.evaluators.program.checkout import make_checkout
from tests.pace import UNHURRIED
from tests.patience import TRIAL_LIMIT_S, until
from tests.requirement import require
from tests.server.entitled import entitled
from tests.server.faults.questions import ONE_RANK, SPACE, TINY
from tests.server.running import Running

__all__ = ["slurm"]

pytestmark = pytest.mark.xdist_group("slurm-service")

BACK_S = 60.0
"""For an allocation to be given back, half of what its lease lasts."""
VIRTUAL = """
description = "virtual nodes on this machine"

[slurm]
gpu_request = "none"
exclusive = false

[polling]
interval_s = 0.2

[pilot]
nodes = 3
idle_release_s = 5
"""
STAND_IN = """
python = "{python}"
{virtual}
[trainer]
adapter = "{checkout}/quick.toml"
"""
"""Trials of a second: nothing is trained."""
QUESTION: dict[str, Any] = {
    "model": TINY,
    "machine": ONE_RANK | {"gpu": "a process", "memory_gib": 2.0},
    "nodes": 2,
    "pool_nodes": 3,
    "evaluator": "slurm",
    "slurm": {"profile": "virtual"},
    "space": SPACE
    | {
        "pipeline_parallel": [1, 2],
        "micro_batch_size": [1, 2],
        "gradient_accumulation_steps": 2,
        "zero_stage": [0, 1],
        "num_nodes": [1, 2],
    },
    "budget": {"max_trials": 2, "stop_early": False},
    "protocol": {
        "confirmations": 1,
        "measured_iterations": 2,
        "most_iterations": 2,
        "time_limit_s": TRIAL_LIMIT_S,
    },
}
ONE: dict[str, Any] = {"budget": {"max_trials": 1}, "protocol": {"confirmations": 0}}


class SlurmService(Running):
    """The application, and its runner in this process."""

    def __init__(self, settings: Settings) -> None:
        app = create_app(settings, pace=UNHURRIED)
        self.client = entitled(app)
        super().__init__(settings, app.state.store, pace=UNHURRIED)

    def create(self, **changes: Any) -> Campaign:
        answer = self.client.post("/api/v1/campaigns", json=QUESTION | changes)
        assert answer.status_code == 201, answer.text
        return Campaign.model_validate(answer.json())

    def campaign(self, campaign: Campaign) -> Campaign:
        return Campaign.model_validate(self._at(campaign).json())

    def trials(self, campaign: Campaign) -> list[Trial]:
        items = self._at(campaign, "/trials?limit=1000").json()["items"]
        return [Trial.model_validate(item) for item in items]

    def recommendation(self, campaign: Campaign) -> Recommendation:
        return Recommendation.model_validate(self._at(campaign, "/recommendation").json())

    def log(self, trial: Trial) -> str:
        return self.client.get(
            f"/api/v1/campaigns/{trial.campaign_id}/trials/{trial.number}/log"
        ).text

    def steer(self, campaign: Campaign, action: str) -> None:
        assert self.client.post(f"/api/v1/campaigns/{campaign.id}/{action}").is_success

    def close(self) -> None:
        self.runner.close()
        self.store.close()

    def _at(self, campaign: Campaign, rest: str = "") -> Any:
        return self.client.get(f"/api/v1/campaigns/{campaign.id}{rest}")


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "virtual.toml").write_text(quick(tmp_path))
    return folder


def quick(tmp_path: Path) -> str:
    """The profile of clusters on which trials last a second."""
    checkout = tmp_path / "Megatron-DeepSpeed"
    if not checkout.exists():
        make_checkout(checkout)
    return STAND_IN.format(python=sys.executable, virtual=VIRTUAL, checkout=checkout)


@pytest.fixture
def service(
    slurm: Cluster,  # noqa: ARG001 (its commands are those of this process now)
    tmp_path: Path,
    profiles: Path,
) -> Iterator[SlurmService]:
    require(find_spec("torch") and find_spec("deepspeed"), "torch and deepspeed")
    settings = Settings(
        data_dir=tmp_path / "data",
        profiles_dir=profiles,
    )
    found = SlurmService(settings)
    yield found
    found.close()


@pytest.mark.parametrize("mode", ["sbatch", "pilot"])
def test_a_campaign_searches_confirms_and_recommends(
    service: SlurmService, slurm: Cluster, profiles: Path, mode: str
) -> None:
    campaign = service.create(slurm={"profile": "virtual", "mode": mode})
    # An edited profile is for later campaigns.
    (profiles / "virtual.toml").write_text('[slurm]\npartition = "gone"\n')
    done = service.until_state(campaign, "done")
    trials = service.trials(campaign)
    assert {trial.state for trial in trials} == {TrialState.OK}, [t.error for t in trials]
    purposes = [trial.purpose for trial in trials]
    assert purposes[:3] == ["baseline", "search", "confirmation"]
    assert len(purposes) <= 4, "one more may stand above the confirmed"
    assert done.reason == "Budget spent: 2 trials."
    for trial in trials:
        assert trial.job_id
        assert trial.host
        assert trial.phase is None
        assert not trial.simulated
        assert trial.gpu_joules_per_token is None
        assert trial.energy_note
        assert trial.node_hours == pytest.approx(
            trial.strategy.num_nodes * (trial.duration_s or 0.0) / 3600
        )
        assert trial.peak_memory_gib_by_rank
        assert "loss" in service.log(trial)
    found = service.recommendation(campaign)
    assert not found.simulated
    assert found.best.confirmed
    assert "benchmark.sbatch" in found.artefacts
    assert (len({trial.job_id for trial in trials}) == 1) == (mode == "pilot")
    service.restart_runner()  # which gives back at once what nobody will use
    slurm.wait_idle(limit_s=BACK_S)


def test_a_waiting_trial_says_why_and_a_pause_withdraws_it(
    service: SlurmService, slurm: Cluster
) -> None:
    for node in slurm.nodes:
        slurm.drain(node)
    campaign = service.create(**ONE)
    service.until(
        lambda: (
            bool(service.trials(campaign))
            and all(t.job_id and t.phase_reason for t in service.trials(campaign))
        )
    )
    waiting = service.trials(campaign)
    assert {trial.phase for trial in waiting} == {"waiting"}
    assert sum(trial.strategy.num_nodes for trial in waiting) <= 3
    service.steer(campaign, "pause")
    service.until(lambda: service.campaign(campaign).pending == 0)
    withdrawn = service.trials(campaign)
    assert {trial.state for trial in withdrawn} == {TrialState.CANCELLED}
    assert {trial.node_hours for trial in withdrawn} == {0.0}
    assert slurm.jobs() == {}
    for node in slurm.nodes:
        slurm.resume(node)
    service.steer(campaign, "resume")
    service.until_state(campaign, "done")
    states = [trial.state for trial in service.trials(campaign)]
    assert states.count(TrialState.OK) == 1


@pytest.fixture
def hold(tmp_path: Path, profiles: Path) -> Path:  # noqa: ARG001 (which makes the checkout)
    """As long as this file exists, no trial goes on."""
    return tmp_path / "Megatron-DeepSpeed" / "hold"


def test_a_restarted_runner_finds_its_jobs_and_runs_none_twice(
    service: SlurmService, slurm: Cluster, hold: Path
) -> None:
    hold.touch()
    campaign = service.create(**ONE)
    service.until(lambda: any(t.phase == "running" for t in service.trials(campaign)))
    before = {trial.token: trial.job_id for trial in service.trials(campaign)}
    service.restart_runner()
    assert slurm.jobs(), "jobs run on without a runner"
    hold.unlink()
    service.until_state(campaign, "done")
    after = {trial.token: trial for trial in service.trials(campaign)}
    assert len(after) == 1
    known = {token: job for token, job in before.items() if job}
    assert {token: after[token].job_id for token in known} == known
    folders = [service.settings.trial_dir(token) for token in after]
    assert all(len(list(folder.glob("attempt-*"))) == 1 for folder in folders)


def test_cancelling_a_campaign_ends_its_jobs_and_only_its(
    service: SlurmService, slurm: Cluster, hold: Path
) -> None:
    other = slurm.command("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 300").strip()
    hold.touch()
    campaign = service.create()
    service.until(lambda: any(t.phase == "running" for t in service.trials(campaign)))
    assert set(slurm.jobs()) > {other}
    service.steer(campaign, "cancel")
    service.until(lambda: service.campaign(campaign).pending == 0)
    assert {trial.state for trial in service.trials(campaign)} == {TrialState.CANCELLED}
    assert set(slurm.jobs()) == {other}
    slurm.command("scancel", other)


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ('[slurm]\npartition = "gone"', {}, "slurm.profile", "partition"),
    (
        "",
        {
            "machine": QUESTION["machine"] | {"max_nodes": 64},
            "nodes": 32,
            "pool_nodes": 32,
            "space": {},
        },
        "nodes",
        "1 to 8",
    ),
    ('python = "/usr/bin/python3"', {}, "slurm.profile", "torch"),
    ('[slurm]\ngpu_request = "none"\nconstraint = "absent"', {}, "slurm.profile", "feature"),
]
"""A profile, changes to the question, the field that is refused, and a part of the error."""


def test_a_campaign_no_trial_can_run_is_refused_before_queueing(
    service: SlurmService, profiles: Path
) -> None:
    for profile, changes, field, text in REFUSED:
        (profiles / "virtual.toml").write_text(profile)
        for dry in ("", "?dry_run=true"):
            answer = service.client.post(f"/api/v1/campaigns{dry}", json=QUESTION | changes)
            assert answer.status_code == 422, answer.text
            named = {error["field"]: error for error in answer.json()["errors"]}
            assert text in str(named[field])
    (profiles / "virtual.toml").write_text('python = "/no/python"\n[slurm]\npartition = "gone"')
    trainable = QUESTION["space"] | {"sequence_parallel": [True, False]}
    answer = service.client.post("/api/v1/campaigns", json=QUESTION | {"space": trainable})
    errors = [(error["field"], error["reason"]) for error in answer.json()["errors"]]
    assert [field for field, _ in errors].count("slurm.profile") == 2, "all at once"
    assert any("/no/python" in reason for _, reason in errors)
    assert any("'gone'" in reason for _, reason in errors)
    assert service.client.get("/api/v1/campaigns").json()["items"] == []


def test_a_campaign_waits_for_a_slurm_that_does_not_answer(
    service: SlurmService, slurm: Cluster, profiles: Path
) -> None:
    """A mistake that could not be seen then is said once it can be, and a corrected one goes on."""
    mine = profiles / "virtual.toml"
    mine.write_text(mine.read_text().replace("= 0.2", "= 0.2\ncommand_limit_s = 2"))
    slurm.stop_controller()
    sound = service.create(**ONE)
    (profiles / "virtual.toml").write_text('[slurm]\npartition = "gone"')
    mistaken = service.create(**ONE)
    service.until(lambda: "Slurm does not answer" in service.campaign(sound).reason)
    assert service.campaign(sound).state == "queued"
    slurm.start_controller()
    paused = service.until_state(mistaken, "paused")
    assert "no such partition" in paused.reason
    assert service.trials(mistaken) == []
    service.until_state(sound, "done")
    assert [trial.state for trial in service.trials(sound)] == [TrialState.OK]


WRAPPER = """#!/bin/sh
case " $* " in *" --test-only "*) exec {sbatch} "$@" ;; esac
echo "the allocation of your project is used up: extend it, and try again" >&2
exit 1
"""


def test_a_refusal_by_slurm_pauses_the_campaign_at_no_cost(
    service: SlurmService, slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a site's wrapper of sbatch, which does not say so before."""
    wrapper = tmp_path / "bin" / "sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text(WRAPPER.format(sbatch=shutil.which("sbatch")))
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(wrapper.parent), prepend=":")
    campaign = service.create(budget={"max_trials": 2})
    paused = service.until_state(campaign, "paused")
    assert "trials were refused: Slurm refused its job: the allocation of your" in paused.reason
    trials = service.trials(campaign)
    assert {trial.state for trial in trials if trial.state != "pending"} == {TrialState.REFUSED}
    assert 3 <= len(trials) <= 6
    assert paused.node_hours == 0.0
    assert slurm.jobs() == {}


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["sbatch", "pilot"])
def test_campaigns_share_the_nodes_fairly(
    service: SlurmService, slurm: Cluster, profiles: Path, mode: str
) -> None:
    """None begins its last trial before every other has begun its first. Without baselines: these
    take all nodes, and Slurm lets narrow trials of others pass them."""
    profile = profiles / "virtual.toml"
    profile.write_text(profile.read_text().replace("nodes = 3", "nodes = 8"))
    fields = {
        "slurm": {"profile": "virtual", "mode": mode},
        "nodes": 4,
        "pool_nodes": 8,
        "space": QUESTION["space"] | {"micro_batch_size": [1, 2, 4, 8], "num_nodes": [1, 2, 4]},
        "baseline": "none",
        "budget": {"max_trials": 3, "stop_early": False},
        "protocol": QUESTION["protocol"] | {"confirmations": 0},
    }
    campaigns = [service.create(**fields, seed=seed) for seed in range(4)]
    service.until(lambda: all(service.state(each) == "done" for each in campaigns))
    trials = [trial for campaign in campaigns for trial in service.trials(campaign)]
    assert {(trial.state, trial.error) for trial in trials} == {(TrialState.OK, None)}
    begun: Counter[int] = Counter()
    for trial in sorted(trials, key=lambda trial: trial.started_at or trial.created_at):
        begun[trial.campaign_id] += 1
        if len(begun) == len(campaigns):
            break
    assert max(begun.values()) < 3, begun
    until(lambda: not slurm.jobs(), "an empty queue")
