from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from sqlalchemy import select, text

from server.runner.claims import Claims, LeaseRenewal
from server.runner.runner import CLOSING_PAUSE_S, Runner
from server.settings import Settings
from server.store import Store
from server.store.tables import CampaignRow, database_seconds
from server.store.trials import all_trials
from tests.pace import QUICK
from tests.patience import until
from tests.server.asking import created, read

BRIEF = replace(QUICK, lease_s=2.0)
"""Far longer than a busy machine holds up the thread that renews it."""


def lease_left_s(store: Store, campaign_id: int) -> float:
    """Of its lease, by the database's clock; negative once it has lapsed."""
    left = select(CampaignRow.lease_until - database_seconds()).where(CampaignRow.id == campaign_id)
    with store.session() as session:
        return float(session.scalar(left) or 0.0)


def lease_until(store: Store, campaign_id: int) -> float:
    with store.session() as session:
        return session.get_one(CampaignRow, campaign_id).lease_until or 0.0


def is_running(store: Store, campaign_id: int) -> bool:
    return [trial.phase for trial in read(store, all_trials, campaign_id)] == ["running"]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_leases_are_renewed_while_a_round_outlasts_them(settings: Settings, store: Store) -> None:
    """Here because it has to wait for the rows of trials, once it has nothing more to write."""
    campaign = created(store, time_scale=1.0, budget={"max_trials": 1})
    stop = threading.Event()
    runner = Runner(settings, store, pace=BRIEF)
    working = threading.Thread(target=runner.run, args=(stop,))
    working.start()
    try:
        until(lambda: is_running(store, campaign.id))
        with store.engine.begin() as connection:
            connection.exec_driver_sql("LOCK TABLE trials IN ACCESS EXCLUSIVE MODE")
            long = lease_until(store, campaign.id) + 3 * BRIEF.lease_s
            until(lambda: lease_until(store, campaign.id) > long)
    finally:
        stop.set()
        working.join()
        runner.close()


def test_a_runner_that_hangs_loses_its_leases(sqlite_settings: Settings) -> None:
    store = Store(sqlite_settings.url)
    store.upgrade()
    campaign = created(store)
    leases = Claims(sqlite_settings, store, BRIEF).take(held=0).leases
    renewal = LeaseRenewal(store, held=lambda: leases, lease_s=BRIEF.lease_s, stuck_after_s=0.0)
    renewal.start()
    until(lambda: lease_left_s(store, campaign.id) < 0)
    assert renewal.in_round() == []
    assert lease_left_s(store, campaign.id) > 0
    renewal.stop()
    store.close()


def test_a_stopping_runner_waits_for_its_database_to_return(
    sqlite_settings: Settings, store: Store
) -> None:
    """Both are restarted together, as containers are."""
    campaign = created(store, time_scale=1.0, budget={"max_trials": 1})
    runner = Runner(sqlite_settings, store, pace=QUICK)
    while not is_running(store, campaign.id):
        runner.round()
    with store.transaction() as session:
        session.execute(text("ALTER TABLE campaigns RENAME TO away"))
    closing = threading.Thread(target=runner.close)
    closing.start()
    closing.join(timeout=CLOSING_PAUSE_S)
    assert closing.is_alive(), "it tries again"
    with store.transaction() as session:
        session.execute(text("ALTER TABLE away RENAME TO campaigns"))
    closing.join()
    with store.session() as session:
        assert session.get_one(CampaignRow, campaign.id).lease_owner is None
