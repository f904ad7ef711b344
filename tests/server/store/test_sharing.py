from __future__ import annotations

from autotune.schemas.choices import CampaignState, TrialState
from server.store import Store
from server.store.campaigns import campaign_row, change_state
from server.store.leases import claim
from server.store.runners import (
    CampaignKind,
    LivingRunner,
    OpenCampaigns,
    RunnerOffer,
    any_in_allocation,
    open_campaigns,
    portions,
)
from server.store.trials import finish_trial
from tests.server.asking import created, ended, with_trials

SIMULATED = CampaignKind(evaluator="simulated", owner=None, own_runner=False)
SLURM = CampaignKind(evaluator="slurm", owner="ada", own_runner=False)
ADAS_OWN = CampaignKind(evaluator="simulated", owner="ada", own_runner=True)


def runner(
    name: str, *evaluators: str, user: str | None = None, full: bool = False
) -> LivingRunner:
    return LivingRunner(owner=name, offer=RunnerOffer(evaluators=evaluators, user=user), full=full)


def some(kind: CampaignKind, count: int, holder: str | None = None) -> OpenCampaigns:
    return OpenCampaigns(kind=kind, holder=holder, count=count)


def more(campaigns: list[OpenCampaigns], runners: list[LivingRunner], me: str) -> list[int]:
    return [part.more for part in portions(campaigns, runners, me=me)]


def test_runners_have_as_many_as_each_other_and_hand_over_what_is_beyond() -> None:
    both = [runner("a", "simulated"), runner("b", "simulated")]
    campaigns = [some(SIMULATED, 4), some(SIMULATED, 3, "a")]
    assert more(campaigns, both, "a") == [1]
    assert more(campaigns, both, "b") == [4]
    assert more([some(SIMULATED, 7, "a")], both, "a") == [-3]
    assert more([some(SIMULATED, 7, "a")], both[:1], "a") == [0]


def test_what_few_runners_take_is_shared_among_these() -> None:
    runners = [runner("a", "simulated", "slurm"), runner("b", "simulated")]
    campaigns = [some(SIMULATED, 4), some(SLURM, 3)]
    assert more(campaigns, runners, "a") == [2, 3]
    assert more(campaigns, runners, "b") == [2]


def test_a_full_runner_keeps_what_it_has_and_the_others_share_the_rest() -> None:
    runners = [runner("a", "simulated", full=True), runner("b", "simulated")]
    assert more([some(SIMULATED, 9), some(SIMULATED, 2, "a")], runners, "b") == [9]


def test_a_users_runner_takes_that_users_and_alone_those_that_ask_for_it() -> None:
    runners = [runner("service", "simulated", "slurm"), runner("own", "simulated", user="ada")]
    campaigns = [some(SIMULATED, 2), some(SLURM, 2), some(ADAS_OWN, 2)]
    assert more(campaigns, runners, "service") == [4]
    assert more(campaigns, runners, "own") == [2]
    ada_shared = CampaignKind(evaluator="simulated", owner="ada", own_runner=False)
    assert more([some(ada_shared, 2)], runners, "own") == [1]


def test_campaigns_are_counted_by_kind_and_holder(store: Store) -> None:
    for _ in range(3):
        created(store)
    created(store, own_runner=True)
    with store.transaction() as session:
        claim(session, "a", seconds=60.0, limit=1)
        claim(session, "gone", seconds=-1.0, limit=1)
    own = CampaignKind(evaluator="simulated", owner=None, own_runner=True)
    with store.session() as session:
        counted = open_campaigns(session)
    assert sorted(counted, key=str) == sorted(
        [some(SIMULATED, 2), some(SIMULATED, 1, "a"), some(own, 1)], key=str
    )


def test_an_allocation_is_of_use_while_a_campaign_of_its_kind_has_work(store: Store) -> None:
    slurm = {"evaluator": "slurm", "slurm": {"profile": "frontier"}}
    pilot = slurm | {"slurm": {"profile": "frontier", "mode": "pilot"}}
    found = []
    for request in ({}, slurm, pilot):
        campaign = created(store, **request)
        with store.session() as session:
            found.append(any_in_allocation(session))
    assert found == [False, False, True]
    trials = with_trials(store, campaign, 1)
    with store.transaction() as session:
        change_state(session, campaign_row(session, campaign.id), CampaignState.CANCELLED)
    with store.session() as session:
        assert any_in_allocation(session), "its trial is still to be ended"
    with store.transaction() as session:
        finish_trial(session, trials[0], ended(TrialState.CANCELLED))
    with store.session() as session:
        assert not any_in_allocation(session)
