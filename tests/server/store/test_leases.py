from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil
import pytest

from autotune.schemas.choices import CampaignState, TrialState
from server.store import LeaseLost, Store
from server.store.campaigns import campaign_row, cancel_campaign, delete_campaign
from server.store.leases import (
    Lease,
    any_in_allocation,
    claim,
    free_the_gone,
    is_gone,
    release,
    renew,
    renew_all,
    this_owner,
    this_place,
)
from server.store.trials import finish_trial, get_trial
from tests.server.asking import created, ended, moved, read, with_trials, write

pytestmark = pytest.mark.each_database

ELSEWHERE = "another-host/1/1/1.00"


def claimed(store: Store, owner: str, *, seconds: float = 60.0, limit: int = 10) -> list[Lease]:
    return write(store, claim, owner, seconds=seconds, limit=limit)


def test_the_oldest_are_claimed_first_up_to_the_limit(store: Store) -> None:
    ids = [created(store).id for _ in range(4)]
    assert [lease.campaign_id for lease in claimed(store, "a", limit=3)] == ids[:3]
    assert [lease.campaign_id for lease in claimed(store, "b", limit=3)] == ids[3:]
    assert claimed(store, "b") == [], "each by one runner"


def test_many_runners_share_the_campaigns_without_overlap(store: Store) -> None:
    ids = {created(store).id for _ in range(12)}
    with ThreadPoolExecutor(6) as pool:
        rounds = pool.map(lambda n: claimed(store, f"runner-{n}", limit=2), range(6))
        found = [lease.campaign_id for leases in rounds for lease in leases]
    found += [lease.campaign_id for lease in claimed(store, "last", limit=12)]
    assert sorted(found) == sorted(ids)


def test_leases_are_renewed_together_and_lost_ones_reported(store: Store) -> None:
    held, lost = created(store), created(store)
    leases = claimed(store, "a", seconds=-1.0)
    claimed(store, "b", limit=2)
    with store.transaction() as session:
        campaign_row(session, held.id).lease_owner = "a"
        campaign_row(session, held.id).lease_epoch = leases[0].epoch
    with store.transaction() as session:
        assert renew_all(session, leases) == {held.id}
        assert campaign_row(session, lost.id).lease_owner == "b"


def test_an_expired_lease_is_taken_over_and_writes_nothing(store: Store) -> None:
    campaign = created(store)
    trial = with_trials(store, campaign, 1)[0]
    old = claimed(store, "a", seconds=-1.0)[0]
    new = claimed(store, "b")[0]
    assert new.epoch > old.epoch

    def store_under_the_old_lease() -> None:
        with store.transaction() as session:
            finish_trial(session, trial, ended(TrialState.CRASHED))
            renew(session, old)

    with pytest.raises(LeaseLost):
        store_under_the_old_lease()
    assert read(store, get_trial, campaign.id, 1).state is TrialState.PENDING
    with store.transaction() as session:
        release(session, old)  # which changes nothing
        assert renew(session, new).id == campaign.id
    same_owner = replace(new, epoch=old.epoch)
    with pytest.raises(LeaseLost), store.transaction() as session:
        renew(session, same_owner)


def test_a_renewed_lease_lasts(store: Store) -> None:
    created(store)
    lease = claimed(store, "a", seconds=-1.0)[0]
    write(store, renew, replace(lease, seconds=60.0))
    assert claimed(store, "b") == []


def test_a_released_campaign_can_be_claimed_at_once(store: Store) -> None:
    created(store)
    lease = claimed(store, "a")[0]
    write(store, release, lease)
    assert len(claimed(store, "b")) == 1


def test_a_resting_campaign_is_claimed_only_with_an_open_trial(store: Store) -> None:
    campaign = created(store)
    trial = with_trials(store, campaign, 1)[0]
    write(store, cancel_campaign, campaign.id)
    lease = claimed(store, "a")[0]
    with store.transaction() as session:
        finish_trial(session, trial, ended(TrialState.CANCELLED))
        release(session, lease)
    assert claimed(store, "a") == []


def test_the_lease_of_a_deleted_campaign_is_lost(store: Store) -> None:
    campaign = created(store)
    lease = claimed(store, "a")[0]
    moved(store, campaign.id, CampaignState.DONE)
    write(store, delete_campaign, campaign.id)
    with pytest.raises(LeaseLost), store.transaction() as session:
        renew(session, lease)


def test_campaigns_of_a_dead_process_are_free_at_once(store: Store) -> None:
    created(store)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = psutil.Process(child.pid).create_time()
    owner = f"{this_place()}/{child.pid}/{started:.2f}"
    claimed(store, owner)
    assert write(store, free_the_gone) == 0
    child.communicate()
    assert write(store, free_the_gone) == 1
    assert len(claimed(store, "b")) == 1


def test_only_processes_of_this_host_can_be_known_to_be_gone() -> None:
    place, pid, started = this_owner().rsplit("/", 2)
    assert not is_gone(this_owner())
    assert not is_gone(ELSEWHERE)
    assert is_gone(f"{place}/{pid}/{float(started) - 5:.2f}"), "its id was given to another process"
    assert int(pid) == os.getpid()


def test_an_allocation_is_useful_while_a_pilot_campaign_has_work(store: Store) -> None:
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
