from __future__ import annotations

import stat
from pathlib import Path

import pytest

from autotune.client.known_services import logins
from tests.server.cli.conftest import Autotune
from tests.serving import serving


def test_two_users_share_a_service(
    alone: Autotune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first admin, before the service runs, to a user who is shut out of it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    data, token = tmp_path / "data", tmp_path / "ann.token"
    folder = ("--data-dir", str(data))
    added = alone("users", "add", "ann", "--scope", "admin", "--out", str(token), *folder)
    assert (added.code, added.out) == (0, ""), added.err
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    wrong = alone("users", "add", "no name", *folder)
    assert wrong.code == 2
    former = alone("users", "add", "bob", "--scope", "read", *folder).out.strip()
    assert former.startswith("bob.")
    changed = alone("users", "add", "bob", "--scope", "submit", *folder)
    assert "bob has the scope submit; the previous token is no" in changed.err
    bob = changed.out.strip()
    users = {user["name"]: user for user in alone("users", "list", "--json", *folder).json()}
    assert {name: user["scope"] for name, user in users.items()} == {
        "ann": "admin",
        "bob": "submit",
    }

    with serving(data, "--group", "--no-runner") as served:
        url = ("--url", served.url)
        away = alone("login", "--url", "http://tuning.example:1", typed=token.read_text())
        assert (away.code, "--url: HTTP is not encrypted" in away.err) == (2, True)
        assert not list(logins())
        entered = alone("login", *url, "--json", typed=token.read_text())
        assert entered.json()["name"] == "ann", entered.err
        [login] = logins()
        assert login.url == served.url
        assert stat.S_IMODE(Path(entered.json()["file"]).stat().st_mode) == 0o600
        assert "ann, with the scope admin" in alone("login", *url, typed=token.read_text()).err
        question = ("--model", "gpt-22b", "--machine", "frontier", "--nodes", "2", "--private")
        ran = alone("submit", *question, *url)
        assert (ran.code, "simulated" in ran.err, "queued" in ran.out) == (0, True, True)

        assert {user["name"] for user in alone("users", "list", "--json", *url).json()} == {
            "ann",
            "bob",
        }

        shown = alone("users", "list", *url).out
        assert all(heading in shown for heading in ("unfinished campaigns", "last here, about"))

        monkeypatch.setenv("AUTOTUNE_TOKEN", bob)
        refused = alone("users", "list", *url)
        assert (refused.code, "this needs admin" in refused.err) == (1, True), refused.err
        assert alone("ls", *url, "--json").json() == []
        monkeypatch.setenv("AUTOTUNE_TOKEN", former)
        assert alone("ls", *url).code == 1
        monkeypatch.setenv("AUTOTUNE_TOKEN", bob)
        assert "there is no campaign 1" in alone("cancel", "1", *url).err
        assert alone("users", "revoke", "bob", *folder).code == 0
        shut_out = alone("ls", *url)
        assert (shut_out.code, "the user bob was revoked" in shut_out.err) == (1, True)
        monkeypatch.delenv("AUTOTUNE_TOKEN")

        assert alone("logout", *url).code == 0
        assert not list(logins())
