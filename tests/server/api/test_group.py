"""A service that a group shares: who is let in, what each sees and changes, and what is noted."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from structlog.testing import capture_logs

from autotune.schemas.users import UserCreate
from server.app import create_app
from server.auth import authentication
from server.auth.authentication import MOST_FAILURES, Authenticator, NotAuthenticated
from server.pace import Pace
from server.settings import Settings
from server.store import Store
from server.store.users import add_user, revoke_user, token_hash
from tests.evaluators.adapter.samples import MACHINE, MODEL
from tests.pace import QUICK
from tests.patience import PATIENCE_S
from tests.server.asking import body
from tests.server.conftest import opened_store
from tests.server.entitled import ADDRESS

SCOPES = {"ann": "admin", "sue": "submit", "sam": "submit", "rob": "read"}


class Group:
    """A shared service in this process, and its users' tokens."""

    def __init__(self, settings: Settings, *, pace: Pace = QUICK) -> None:
        self.app: FastAPI = create_app(settings, pace=pace)
        self.store: Store = self.app.state.store
        self.tokens: dict[str, str] = {}
        with self.store.transaction() as session:
            for name, scope in SCOPES.items():
                request = UserCreate.model_validate({"name": name, "scope": scope})
                self.tokens[name] = add_user(session, request)
        self.client = TestClient(self.app, base_url=ADDRESS, follow_redirects=False)

    def ask(self, user: str, method: str, path: str, **options: Any) -> Any:
        """Send a request with a user's token."""
        headers = {"Authorization": f"Bearer {self.tokens[user]}"} | options.pop("headers", {})
        path = path if path.startswith("/~") or path in {"/", ""} else f"/api/v1{path}"
        path = path.removeprefix("/~")
        return self.client.request(method, path or "/", headers=headers, **options)

    def made(self, user: str, **changes: Any) -> int:
        answer = self.ask(user, "POST", "/campaigns", json=body(**changes))
        assert answer.status_code == 201, answer.text
        number: int = answer.json()["id"]
        return number


@pytest.fixture
def group_settings(sqlite_settings: Settings, migrated: Path) -> Settings:
    opened_store(sqlite_settings, migrated).close()
    return sqlite_settings.model_copy(update={"group": True})


@pytest.fixture
def group(group_settings: Settings) -> Iterator[Group]:
    made = Group(group_settings)
    with made.client:
        yield made


def test_users_are_let_in_by_their_tokens_alone(group: Group) -> None:
    me = group.ask("sue", "GET", "/whoami").json()
    assert me == {"name": "sue", "scope": "submit", "group": True}
    stored = token_hash(group.tokens["ann"])  # what the database keeps
    for wrong in (
        *(group.tokens["rob"].replace("rob", "ann"), "ann", "nobody." + "x" * 43, ""),
        *(stored, f"ann.{stored}", f"ann.{stored[:43]}"),
    ):
        headers = {"Authorization": f"Bearer {wrong}"}
        assert group.client.get("/api/v1/whoami", headers=headers).status_code == 401


ALLOWED = [
    ("rob", "GET", "/campaigns", 200),
    ("rob", "POST", "/predictions", 422),
    ("sam", "POST", "/campaigns/1/cancel", 403),
    ("sam", "POST", "/campaigns/1/pause", 403),
    ("sam", "POST", "/campaigns/1/resume", 403),
    ("sam", "POST", "/campaigns/1/extend", 403),
    ("sam", "PATCH", "/campaigns/1", 403),
    ("sam", "DELETE", "/campaigns/1", 403),
    ("sam", "GET", "/campaigns/1", 200),
    ("sam", "GET", "/users", 403),
    ("sam", "POST", "/users", 403),
    ("sam", "POST", "/users/sam/revoke", 403),
    ("sue", "POST", "/campaigns/1/pause", 200),
    ("ann", "POST", "/campaigns/1/cancel", 200),
    ("ann", "GET", "/users", 200),
    ("ann", "GET", "/~/group", 200),
]


def test_each_may_do_what_the_scope_and_the_owner_allow(group: Group) -> None:
    """The last ones steer the campaign."""
    group.made("sue")
    for user, method, path, status in ALLOWED:
        valid = {"max_trials": 99} if path.endswith("extend") else {"name": "x"}
        request = body() if path == "/campaigns" else valid
        answer = group.ask(user, method, path, json=None if method == "GET" else request)
        assert answer.status_code == status, (user, method, path, answer.text)
        if status == 403:
            reason = (f"{user} has the scope", "campaign 1 is sue's")
            assert answer.json()["detail"].startswith(reason)


def test_a_page_for_admins_says_so_to_others(group: Group) -> None:
    for user in ("sue", "rob"):
        answer = group.ask(user, "GET", "/~/group")
        assert answer.status_code == 403
        assert answer.headers["content-type"].startswith("text/html")
        assert f"You are signed in as {user} with the scope {SCOPES[user]}." in answer.text
        assert "<table" not in answer.text


def test_nothing_of_a_private_campaign_is_shown_elsewhere(group: Group) -> None:
    """What reads alone, `test_rights` asks of every address."""
    hidden, shown = group.made("sue", private=True, name="secret"), group.made("sue")
    for user in ("sam", "rob"):
        assert "secret" not in group.ask(user, "GET", f"/~/campaigns/new?like={hidden}").text
        for path in ("/~/fragments/campaigns?search=secre", "/campaigns?search=secre"):
            assert "secret" not in group.ask(user, "GET", path).text
        listed = group.ask(user, "GET", "/campaigns").json()["items"]
        assert [campaign["id"] for campaign in listed] == [shown]
    assert group.ask("sam", "POST", f"/campaigns/{hidden}/cancel").status_code == 404
    for user in ("sue", "ann"):
        assert group.ask(user, "GET", f"/campaigns/{hidden}").json()["private"] is True
        assert "secret" in group.ask(user, "GET", "/~/").text
    for path in (f"/campaigns/{shown}", f"/~/campaigns/{shown}"):  # and is cached for all
        assert group.ask("sam", "GET", path).status_code == 200
    change = {"private": True, "name": "hidden"}
    assert group.ask("sue", "PATCH", f"/campaigns/{shown}", json=change).json()["name"] == "hidden"
    for path in (f"/campaigns/{shown}", f"/~/campaigns/{shown}"):
        assert group.ask("sam", "GET", path).status_code == 404


def test_events_tell_each_of_what_they_see(group_settings: Settings) -> None:
    group = Group(group_settings, pace=replace(QUICK, stream_life_s=0.2))
    with group.client:
        group.made("sue", private=True, name="secret")
        group.made("sue", name="open")
        seen = {user: group.ask(user, "GET", "/events?after=0").text for user in ("sam", "sue")}
        assert "secret" not in seen["sam"]
        assert "open" in seen["sam"]
        assert "secret" in seen["sue"]


def test_a_key_of_one_user_is_not_another_ones(group: Group) -> None:
    headers = {"Idempotency-Key": "same"}
    first = group.ask("sue", "POST", "/campaigns", json=body(private=True), headers=headers)
    other = group.ask("sam", "POST", "/campaigns", json=body(private=True), headers=headers)
    again = group.ask("sue", "POST", "/campaigns", json=body(private=True), headers=headers)
    assert (first.json()["id"], other.json()["id"], again.json()["id"]) == (1, 2, 1)
    assert other.json()["owner"] == "sam"


def test_a_user_who_is_revoked_is_shut_out_of_everything(group: Group) -> None:
    signed = group.client.post("/enter", data={"token": group.tokens["sue"]})
    assert signed.status_code == 200
    assert group.client.get("/").status_code == 200
    with group.store.transaction() as session:
        revoke_user(session, "sue")
    assert group.client.get("/").status_code == 401
    refused = group.ask("sue", "GET", "/campaigns")
    assert refused.status_code == 401
    assert "sue was revoked" in refused.json()["detail"]
    with group.store.transaction() as session:
        group.tokens["sue"] = add_user(session, UserCreate(name="sue"))
    assert group.client.get("/").status_code == 401, "the session was of the token before"
    assert group.ask("sue", "GET", "/campaigns").status_code == 200


@pytest.mark.parametrize("idle", [False, True])
def test_a_stream_ends_once_its_user_is_revoked(group_settings: Settings, *, idle: bool) -> None:
    """Whether or not something happens, which is no longer sent."""
    group = Group(group_settings)
    with group.client, ThreadPoolExecutor() as threads:
        group.made("sam", name="before")
        following = threads.submit(group.ask, "sue", "GET", "/events?after=0")
        while not group.app.state.feed.streams:
            threads.submit(lambda: None).result()
        with group.store.transaction() as session:
            revoke_user(session, "sue")
        if not idle:
            group.made("sam", name="after")
        text = following.result(timeout=PATIENCE_S).text
    assert "after" not in text


def test_a_browser_signs_in_and_out(group: Group) -> None:
    page = group.client.get("/compare?ids=1", headers={"Accept": "text/html"})
    assert page.status_code == 401
    assert 'value="/compare?ids=1"' in page.text
    wrong = group.client.post("/enter", data={"token": "sue.wrong"})
    assert "This token is not valid" in wrong.text
    entered = group.client.post("/enter", data={"token": group.tokens["sue"], "to": "/compare"})
    assert "url=/compare" in entered.text
    home = group.client.get("/")
    assert "sue" in home.text
    assert "Sign out" in home.text
    cookies = dict(group.client.cookies)
    assert "Sign in" in group.client.post("/leave").text
    group.client.cookies.update(cookies)
    assert group.client.get("/").status_code == 401, "the cookie itself is worth nothing any more"


def test_a_key_lets_the_browser_of_its_own_user_in(group: Group) -> None:
    key = group.ask("rob", "POST", "/browser-keys").json()["key"]
    assert group.client.get("/enter", params={"key": key}).status_code == 200
    assert group.client.get("/api/v1/whoami").json()["name"] == "rob"
    assert 'href="/campaigns/new"' not in group.client.get("/compare").text


def test_failed_sign_ins_are_limited(group: Group) -> None:
    guess = f"sue.{'x' * 43}"
    for _ in range(MOST_FAILURES):
        assert group.client.post("/enter", data={"token": guess}).status_code == 401
    answer = group.client.post("/enter", data={"token": group.tokens["sue"]})
    assert answer.status_code == 429
    assert "Set-Cookie" not in answer.headers
    assert group.client.post("/enter", data={"token": group.tokens["sam"]}).status_code == 200


def test_a_users_many_keys_and_sessions_end_their_own(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MOST_KEYS", "MOST_SESSIONS"):
        monkeypatch.setattr(authentication, name, 3)

    def key(name: str) -> str:
        return str(group.ask(name, "POST", "/browser-keys").json()["key"])

    theirs, first = key("sam"), key("sue")
    authenticator: Authenticator = group.app.state.authenticator
    cookie = authenticator.redeem(key("sam"))
    for _ in range(3):
        key("sue")
    assert group.client.get(f"/enter?key={first}").status_code == 401
    assert group.client.get(f"/enter?key={theirs}").status_code == 200
    (_, oldest), *_, (_, last) = (
        authenticator.sign_in(group.tokens["sue"], address="") for _ in range(4)
    )
    with pytest.raises(NotAuthenticated):
        authenticator.by_session(oldest)
    assert authenticator.by_session(last).name == "sue"
    assert cookie is not None
    assert authenticator.by_session(cookie).name == "sam"


def test_pages_offer_what_one_may_do(group: Group) -> None:
    number = group.made("sue", name="sue's")
    group.made("sam", name="sam's")
    shown = {user: group.ask(user, "GET", f"/~/campaigns/{number}").text for user in SCOPES}
    offered = {user for user, page in shown.items() if 'data-action="cancel"' in page}
    assert offered == {"sue", "ann"}
    assert {user for user, page in shown.items() if 'data-action="hide"' in page} == {"sue", "ann"}
    assert group.ask("sue", "PATCH", f"/campaigns/{number}", json={"private": True}).is_success
    assert 'data-action="show"' in group.ask("sue", "GET", f"/~/campaigns/{number}").text
    again = group.ask("sue", "GET", f"/~/campaigns/new?like={number}").text
    assert 'name="private"' in again
    assert {user for user, page in shown.items() if "Duplicate" in page} == {"ann", "sue", "sam"}
    assert all(f"<span>{user}" in page for user, page in shown.items())
    assert {user for user, page in shown.items() if 'href="/group"' in page} == {"ann"}
    mine = group.ask("sue", "GET", "/~/?owner=sue").text
    assert "sue&#39;s" in mine
    assert "sam&#39;s" not in mine
    listed = group.ask("rob", "GET", "/campaigns?owner=sam").json()["items"]
    assert [campaign["owner"] for campaign in listed] == ["sam"]


def test_the_log_names_the_user_of_each_change_and_refusal(group: Group) -> None:
    number = group.made("sue")
    path = f"/api/v1/campaigns/{number}"
    with capture_logs() as lines:
        group.ask("sam", "POST", f"/campaigns/{number}/cancel")
        group.client.post(f"{path}/cancel")
        group.ask("sue", "DELETE", f"/campaigns/{number}")
    answered = [line for line in lines if line["event"] == "answered"]
    assert [(e["user"], e["method"], e["path"], e["status"]) for e in answered] == [
        ("sam", "POST", f"{path}/cancel", 403),
        (None, "POST", f"{path}/cancel", 401),
        ("sue", "DELETE", path, 409),
    ]


def test_settings_name_ray_clusters_and_allow_adapter_files(
    group_settings: Settings,
) -> None:
    changes = {"ray_addresses": ("10.0.0.1:6379",), "allow_adapter_files": True}
    group = Group(group_settings.model_copy(update=changes))
    with group.client:
        assert group.made("sue", **SENT)
        request = body(evaluator="ray", ray={"address": "169.254.169.254:80"})
        answer = group.ask("sue", "POST", "/campaigns", json=request)
        assert answer.status_code == 422
        known = "only to its configured Ray clusters (valid: 10.0.0.1:6379)"
        assert known in answer.json()["detail"]


SENT = body(
    model=asdict(MODEL),
    machine=asdict(MACHINE) | {"name": "local", "sources": []},
    nodes=1,
    pool_nodes=1,
    evaluator="local",
    space={"micro_batch_size": [1, 2]},
    adapter={
        "name": "mine",
        "text": 'command = ["{python}", "train.py", "{micro_batch_size}"]\n'
        "[[read]]\nlog = '(?P<step>\\d+) (?P<iteration_time_s>\\S+)'\n",
        "folder": "/mine",
    },
)
SUBJECT = {key: SENT[key] for key in ("model", "machine", "evaluator", "adapter")}
ONE = {"tensor_parallel": 1, "pipeline_parallel": 1, "num_nodes": 1, "zero_stage": 0} | {
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "activation_checkpointing": "none",
    "precision": "fp32",
}


def test_only_admins_send_adapter_files(group: Group) -> None:
    for path, request in (
        ("/campaigns", SENT),
        ("/campaigns?dry_run=true", SENT),
        ("/plans", SENT),
        ("/~/fragments/plan?view=page", SENT),
        ("/predictions", SUBJECT | {"strategy": ONE}),
        ("/~/fragments/memory", SUBJECT | {"strategy": ONE}),
        ("/~/fragments/scaling", SUBJECT | {"strategy": ONE}),
    ):
        refused = group.ask("sue", "POST", path, json=request)
        assert refused.status_code == 422, path
        [error] = refused.json()["errors"]
        assert error["field"] == "adapter", path
        assert "only admins may send an adapter's file" in error["reason"]
        taken = group.ask("ann", "POST", path, json=request)
        assert taken.status_code in {200, 201}, (path, taken.text)


def test_only_a_proxy_names_users_and_it_adds_them_if_allowed(
    group_settings: Settings,
) -> None:
    header = "X-Forwarded-User"
    with pytest.raises(ValueError, match="group"):
        Settings(proxy_user_header=header)
    settings = group_settings.model_copy(update={"proxy_user_header": header})

    def whoami(app: FastAPI, name: str, peer: str = "127.0.0.1") -> Any:
        with TestClient(app, base_url=ADDRESS, client=(peer, 1)) as client:
            return client.get("/api/v1/whoami", headers={header: name})

    group = Group(settings)
    assert whoami(group.app, "sue").json()["name"] == "sue"
    assert whoami(group.app, "sue", peer="10.0.0.9").status_code == 401
    unknown = whoami(group.app, "eve")
    assert unknown.status_code == 401
    assert "'eve' is no user of this service" in unknown.json()["detail"]
    adding = {"proxy_new_users": "read", "proxy_addresses": ("10.0.0.9",)}
    app = create_app(settings.model_copy(update=adding), pace=QUICK)
    me = whoami(app, "eve@example.org", peer="10.0.0.9").json()
    assert (me["name"], me["scope"]) == ("eve@example.org", "read")
    assert whoami(app, "no name!", peer="10.0.0.9").status_code == 401
    assert whoami(app, "eve@example.org").status_code == 401
