"""A campaign that is extended while its runner ends it."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient

from autotune.schemas.requests import BudgetExtension
from server.runner.admission import MachineQueue
from server.runner.backends import EvaluatorBackends
from server.runner.campaign import ClaimedCampaign
from server.runner.claims import Claims
from server.runner.trial_ends import OutcomeNotes
from server.settings import Settings
from server.store import Store
from server.store.campaigns import extend_campaign, get_campaign
from server.store.events import last_event_id
from tests.pace import QUICK
from tests.patience import until
from tests.server.asking import read, write
from tests.server.runner.test_adapter import CAMPAIGN
from tests.server.running import Running

KNOB = """
[knob.order]
meaning = "changes nothing"
values = ["default", "other"]
numerics = "identical"
set = { "$ORDER" = "{order}" }
"""


class SlowNotes(OutcomeNotes):
    """So slow that the campaign is extended before its last outcome is stored."""

    def __init__(self, store: Store, campaign_id: int) -> None:
        super().__init__(store)
        self._extended: tuple[Store, int] | None = (store, campaign_id)

    def keep(self, *of: Any, at_once: bool = False) -> bool:
        if at_once and self._extended:
            store, number = self._extended
            write(store, extend_campaign, number, BudgetExtension(knobs=["order"]))
            self._extended = None
        return super().keep(*of, at_once=at_once)


def test_knobs_added_at_the_last_moment_are_tried(
    client: TestClient, running: Running, own: Settings
) -> None:
    store = running.store
    question = CAMPAIGN | {"knob_file": KNOB, "budget": {"max_trials": 1}}
    number = client.post("/api/v1/campaigns", json=question).json()["id"]
    [lease] = Claims(own, store, QUICK).take(held=0).leases
    backends = EvaluatorBackends(cluster_retry_s=QUICK.cluster_retry_s)
    campaign = ClaimedCampaign(
        lease,
        store=store,
        settings=own,
        backends=backends,
        machine_queue=MachineQueue(),
        outcomes=SlowNotes(store, number),
    )
    until(
        lambda: campaign.at_rest,
        lambda: [read(store, get_campaign, number).reason],
        step=lambda: campaign.advance(read(store, last_event_id)),
        progress=lambda: read(store, last_event_id),
    )
    backends.close()
    ended = read(store, get_campaign, number)
    assert ended.state == "done"
    assert ended.knob_starts >= 4, ended.reason
