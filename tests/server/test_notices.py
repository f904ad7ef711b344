"""Notices of campaigns, sent by Apprise to a real web server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from structlog.testing import capture_logs

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState
from search_spaces.errors import InvalidInput
from server.logs import without_secrets
from server.notices import CampaignNotices
from server.store import Store
from server.store.campaigns import campaign_row, change_state, delete_campaign, pause_campaign
from tests.patience import until
from tests.server.asking import created, write


@dataclass
class Hook:
    """A web server that keeps what it receives."""

    url: str
    status: int = 200
    taken: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def listening() -> Iterator[Hook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.taken.append(json.loads(body))
            self.send_response(heard.status)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        heard = Hook(url=f"json://127.0.0.1:{server.server_port}/secret-path")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield heard
        server.shutdown()


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")  # a user's proxy is for addresses elsewhere
    with listening() as opened:
        yield opened


@pytest.fixture
def notices(store: Store, hook: Hook) -> CampaignNotices:
    return CampaignNotices(store, hook.url, url="http://127.0.0.1:8765/")


def becomes(store: Store, campaign: Campaign, state: CampaignState, reason: str = "") -> None:
    with store.transaction() as session:
        change_state(session, campaign_row(session, campaign.id), state, reason=reason)


@pytest.mark.parametrize("state", ["done", "cancelled", "failed", "paused"])
def test_an_end_or_pause_is_sent_once(
    store: Store, notices: CampaignNotices, hook: Hook, state: str
) -> None:
    campaign = created(store, name="22B, überall")
    becomes(store, campaign, CampaignState.RUNNING)
    notices.send_new()
    assert not hook.taken
    becomes(store, campaign, CampaignState(state), "Budget spent: 6 trials.")
    notices.send_new()
    notices.send_new()
    [sent] = hook.taken
    assert f"campaign {campaign.id} (22B, überall) is now {state}" in sent["title"]
    assert "Reason: Budget spent: 6 trials." in sent["message"]
    assert "trials are simulated" in sent["message"]
    assert sent["message"].endswith(f"http://127.0.0.1:8765/campaigns/{campaign.id}")


def test_a_private_campaign_is_not_sent(store: Store, notices: CampaignNotices, hook: Hook) -> None:
    private, shared, gone = (created(store) for _ in range(3))
    with store.transaction() as session:
        row = campaign_row(session, private.id)
        row.owner, row.private = "sue", True
    for campaign in (private, shared, gone):
        becomes(store, campaign, CampaignState.DONE)
    with store.transaction() as session:
        delete_campaign(session, gone.id)
    notices.send_new()
    assert [f"campaign {shared.id} " in sent["title"] for sent in hook.taken] == [True]


def test_earlier_ends_are_not_sent(store: Store, hook: Hook) -> None:
    becomes(store, created(store), CampaignState.DONE)
    CampaignNotices(store, hook.url, url="http://127.0.0.1").send_new()
    assert not hook.taken


def test_a_failure_is_logged_and_the_next_is_sent(
    store: Store, notices: CampaignNotices, hook: Hook
) -> None:
    hook.status = 500
    first, second = created(store), created(store)
    write(store, pause_campaign, first.id)
    with capture_logs() as lines:
        notices.send_new()
    assert [(line["event"], line["campaign"]) for line in lines] == [("notice_failed", first.id)]
    hook.status = 200
    write(store, pause_campaign, second.id)
    notices.send_new()
    assert f"campaign {second.id} " in hook.taken[-1]["title"]


def test_notices_are_sent_in_a_thread_until_it_stops(store: Store, hook: Hook) -> None:
    notices = CampaignNotices(store, hook.url, url="http://127.0.0.1", every_s=0.01)
    notices.start()
    write(store, pause_campaign, created(store).id)
    until(lambda: len(hook.taken) == 1)
    notices.stop(timeout_s=10)


def test_urls_are_refused_and_logged_without_secrets(store: Store, hook: Hook) -> None:
    with pytest.raises(InvalidInput, match="Apprise cannot read URL 2") as refused:
        CampaignNotices(store, f"{hook.url}\nnonsense-password", url="http://127.0.0.1")
    assert "nonsense-password" not in str(refused.value)
    assert "secret-path" not in without_secrets(f"cannot reach {hook.url}")
