from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState, TrialState
from server.store import Store
from server.store.campaigns import campaign_row, change_state, get_campaign
from server.store.events import last_event_id
from server.store.leases import claim
from server.store.runners import (
    FORGOTTEN_AFTER_S,
    SILENT_AFTER_S,
    CampaignKind,
    KnownRunner,
    OpenCampaigns,
    RunnerOffer,
    any_in_allocation,
    forget_runner,
    forget_waiting,
    known_runners,
    note_runner,
    note_waiting,
    open_campaigns,
    portions,
)
from server.store.tables import RunnerRow
from server.store.trials import finish_trial
from tests.server.asking import created, ended, moved, read, with_trials, write

MINUTE_S = 60.0


def told(store: Store, *owners: tuple[str, float, float]) -> list[str]:
    """Which are told of, of runners that began, and were last heard of, so many seconds ago."""
    now = datetime.now(UTC)
    with store.transaction() as session:
        for owner, began_s, silent_s in owners:
            began = now - timedelta(seconds=began_s)
            offer = RunnerOffer(evaluators=["simulated"])
            note_runner(
                session, owner, version="1", started_at=began, offer=offer, full=False, figures=[]
            )
            seen = RunnerRow.seen_at - silent_s
            session.execute(update(RunnerRow).where(RunnerRow.owner == owner).values(seen_at=seen))
    return [runner.owner for runner in read(store, known_runners)]


def test_a_runner_of_a_container_that_was_started_again_is_told_of_no_more(store: Store) -> None:
    silent_s = SILENT_AFTER_S + 1.0
    before, other, neighbour = "c1/17/7/1.00", "c2/18/7/1.00", "c1/17/8/1.00"
    after = "c1/19/7/2.00"
    old = ((before, 503.0, silent_s), (other, 502.0, silent_s), (neighbour, 501.0, 1.0))
    assert told(store, *old) == [before, other, neighbour]
    assert told(store, (after, silent_s - 1.0, 1.0)) == [other, neighbour, after]
    assert told(store, (before, 503.0, 0.0)) == [before, other, neighbour, after], "it lives"


def test_a_runner_that_was_silent_for_long_is_told_of_no_more(store: Store) -> None:
    assert told(store, ("c1/17/7/1.00", 9000.0, FORGOTTEN_AFTER_S + 1.0)) == []
    assert told(store, ("c2/17/7/1.00", 9000.0, FORGOTTEN_AFTER_S - MINUTE_S)) == ["c2/17/7/1.00"]


SIMULATED = CampaignKind(evaluator="simulated", owner=None, own_runner=False)
SLURM = CampaignKind(evaluator="slurm", owner="ada", own_runner=False)
ADAS_OWN = CampaignKind(evaluator="simulated", owner="ada", own_runner=True)


def runner(name: str, *evaluators: str, user: str | None = None, full: bool = False) -> KnownRunner:
    return KnownRunner(
        owner=name,
        version="1",
        started_at=datetime.now(UTC),
        silent_s=0.0,
        offer=RunnerOffer(evaluators=evaluators, user=user),
        full=full,
        campaigns=[],
        figures=[],
    )


def some(kind: CampaignKind, count: int, holder: str | None = None) -> OpenCampaigns:
    return OpenCampaigns(kind=kind, holder=holder, count=count)


def more(campaigns: list[OpenCampaigns], runners: list[KnownRunner], me: str) -> list[int]:
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
    counted = read(store, open_campaigns)
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
    moved(store, campaign.id, CampaignState.CANCELLED)
    assert read(store, any_in_allocation), "its trial is still to be ended"
    write(store, finish_trial, trials[0], ended(TrialState.CANCELLED))
    assert not read(store, any_in_allocation)


ELSEWHERE = "another-host/1/1/1.00"


def reason(store: Store, campaign: Campaign) -> str:
    note_waiting(store, silent_s=30.0)
    return read(store, get_campaign, campaign.id).reason


def working(store: Store, *evaluators: str, user: str | None = None, full: bool = False) -> None:
    with store.transaction() as session:
        forget_runner(session, ELSEWHERE)
        note_runner(
            session,
            ELSEWHERE,
            version="1",
            started_at=datetime.now(UTC),
            offer=RunnerOffer(evaluators=evaluators, user=user),
            full=full,
            figures=[],
        )


def test_a_campaign_says_why_it_waits_until_a_runner_has_it(store: Store) -> None:
    campaign = created(store)
    assert reason(store, campaign) == "waits for a runner, and none runs (autotune runner)"
    working(store, "slurm", "ray")
    assert "takes simulated trials, and none that runs does" in reason(store, campaign)
    working(store, "simulated", full=True)
    assert "waits for room: the runner that takes it works on as many" in reason(store, campaign)
    told = read(store, last_event_id)
    assert reason(store, campaign)
    assert read(store, last_event_id) == told, "what has not changed is not told again"
    with store.transaction() as session:
        [lease] = claim(session, ELSEWHERE, seconds=60.0, limit=1)
        forget_waiting(session, [lease.campaign_id])
    assert reason(store, campaign) == ""


@pytest.mark.parametrize("user", [None, "ada"])
def test_who_asks_for_an_own_runner_waits_for_it(store: Store, user: str | None) -> None:
    campaign = created(store, own_runner=True)
    working(store, "simulated", user=user)
    assert "autotune runner --as-me" in reason(store, campaign)


def test_a_runner_that_has_fallen_silent_does_not_run(store: Store) -> None:
    campaign = created(store)
    working(store, "simulated")
    assert reason(store, campaign) == ""
    note_waiting(store, silent_s=-1.0)
    assert "none runs" in read(store, get_campaign, campaign.id).reason


def test_one_that_confirms_says_besides_why_its_search_ended(store: Store) -> None:
    campaign = created(store)
    ended = "The budget of 6 trials is spent."
    with store.transaction() as session:
        row = campaign_row(session, campaign.id)
        change_state(session, row, CampaignState.CONFIRMING, reason=ended)
    assert reason(store, campaign) == (
        f"{ended} It waits for a runner, and none runs (autotune runner)"
    )
    working(store, "slurm")
    assert reason(store, campaign).startswith(f"{ended} It waits for a runner that takes simulated")
    with store.transaction() as session:
        [lease] = claim(session, ELSEWHERE, seconds=60.0, limit=1)
        forget_waiting(session, [lease.campaign_id])
    assert reason(store, campaign) == ended
