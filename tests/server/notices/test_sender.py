"""Who is told of a campaign's end, by a real mail server and a real web server."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState
from autotune.schemas.users import UserCreate
from search_spaces.errors import InvalidInput
from server.notices.sender import NoticeChannels, NoticeSender
from server.settings import Settings
from server.store import Store
from server.store.campaigns import campaign_row, cancel_campaign, change_state, pause_campaign
from server.store.notices import waiting_notices
from server.store.tables import CampaignRow
from server.store.users import add_user, revoke_user
from tests.requirement import require
from tests.server.asking import created
from tests.server.conftest import opened_store
from tests.server.notices.receivers import PASSWORD, USER, Hook, MailBox, listening

KEY = bytes(range(32))
OPERATOR = "operator@example.org"


@pytest.fixture
def store(sqlite_settings: Settings, migrated: Path) -> Iterator[Store]:
    opened = opened_store(sqlite_settings, migrated)
    yield opened
    opened.close()


@pytest.fixture
def mailbox() -> Iterator[MailBox]:
    found = MailBox()
    with listening(found):
        yield found


@pytest.fixture
def hook() -> Iterator[Hook]:
    found = Hook()
    with listening(found):
        yield found


def settings_of(mailbox: MailBox, hook: Hook, folder: Path) -> Settings:
    secret = folder / "secret"
    secret.write_text(base64.b64encode(KEY).decode() + "\n")
    return Settings(
        notice_webhook_url=hook.url,
        notice_webhook_secret=f"file:{secret}",
        notice_smtp=f"127.0.0.1:{mailbox.port}",
        notice_smtp_security="none",
        notice_from="autotune@example.org",
        notice_to=(OPERATOR,),
        public_url="https://tuning.example.org",
    )


@pytest.fixture
def sender(store: Store, mailbox: MailBox, hook: Hook, tmp_path: Path) -> NoticeSender:
    channels = NoticeChannels.of(settings_of(mailbox, hook, tmp_path), url="http://127.0.0.1")
    return NoticeSender(store, channels)


def made(store: Store, *, owner: str | None = None, **changes: object) -> Campaign:
    campaign = created(store, **changes)
    with store.transaction() as session:
        named = update(CampaignRow).where(CampaignRow.id == campaign.id)
        session.execute(named.values(owner=owner, private=bool(changes.get("private"))))
    return campaign


def ends(store: Store, campaign: Campaign, state: CampaignState, reason: str = "") -> None:
    with store.transaction() as session:
        change_state(session, campaign_row(session, campaign.id), state, reason=reason)


def waiting(store: Store) -> int:
    with store.session() as session:
        return waiting_notices(session)


def test_an_end_is_told_to_operators_webhook_and_the_owner_who_asked(
    store: Store, sender: NoticeSender, mailbox: MailBox, hook: Hook
) -> None:
    with store.transaction() as session:
        add_user(session, UserCreate(name="sue", email="sue@example.org"))
    campaign = made(store, owner="sue", notify=True, name="22B, überall")
    ends(store, campaign, CampaignState.RUNNING)
    assert waiting(store) == 0
    ends(store, campaign, CampaignState.DONE, "the budget of 6 trials is spent")
    sender.send_due(datetime.now(UTC))

    ((headers, body),) = hook.taken
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    told = json.loads(body)
    assert told["type"] == "campaign.done"
    assert told["data"]["reason"] == "the budget of 6 trials is spent"
    assert told["data"]["url"] == f"https://tuning.example.org/campaigns/{campaign.id}"

    assert [to for to, _ in mailbox.taken] == [[OPERATOR], ["sue@example.org"]]
    message = mailbox.taken[1][1]
    assert message["Subject"] == f"autotune: campaign {campaign.id} (22B, überall) is done"
    assert headers["webhook-id"] in message["Message-ID"]
    assert "the budget of 6 trials is spent" in message.get_content()
    assert waiting(store) == 0


def test_a_failed_notice_is_sent_again_later_to_those_alone_whom_it_did_not_reach(
    store: Store, sender: NoticeSender, mailbox: MailBox, hook: Hook
) -> None:
    campaign = created(store)
    with store.transaction() as session:
        pause_campaign(session, campaign.id)
    hook.status = 302  # redirections are not followed
    now = datetime.now(UTC)
    sender.send_due(now)
    assert (len(hook.taken), len(mailbox.taken), waiting(store)) == (1, 1, 1)
    sender.send_due(now + timedelta(seconds=9))
    assert len(hook.taken) == 1
    hook.status = 200
    sender.send_due(now + timedelta(seconds=11))
    assert (len(hook.taken), len(mailbox.taken), waiting(store)) == (2, 1, 0)
    ids = {headers["webhook-id"] for headers, _ in hook.taken}
    assert len(ids) == 1


def test_after_a_day_it_is_given_up(
    store: Store, sender: NoticeSender, mailbox: MailBox, hook: Hook
) -> None:
    campaign = created(store)
    with store.transaction() as session:
        cancel_campaign(session, campaign.id)
    hook.status, mailbox.refusing = 500, True
    now = began = datetime.now(UTC)
    while waiting(store):
        sender.send_due(now)
        now += timedelta(hours=6)
    assert timedelta(days=1) <= now - began <= timedelta(days=1, hours=6)
    assert len(hook.taken) == 5
    assert not mailbox.taken


def test_of_a_private_campaign_its_owner_alone_is_told_and_none_who_was_revoked(
    store: Store, sender: NoticeSender, mailbox: MailBox, hook: Hook
) -> None:
    with store.transaction() as session:
        for name in ("sue", "sam"):
            add_user(session, UserCreate(name=name, email=f"{name}@example.org"))
        revoke_user(session, "sam")
    for owner in ("sue", "sam"):
        campaign = made(store, owner=owner, notify=True, private=True)
        ends(store, campaign, CampaignState.FAILED, "no")
    sender.send_due(datetime.now(UTC))
    assert [to for to, _ in mailbox.taken] == [["sue@example.org"]]
    assert not hook.taken
    assert waiting(store) == 0


def test_where_nobody_is_to_be_told_notices_go(store: Store) -> None:
    campaign = created(store)
    with store.transaction() as session:
        cancel_campaign(session, campaign.id)
    nobody = NoticeChannels.of(Settings(), url="http://127.0.0.1")
    NoticeSender(store, nobody).send_due(datetime.now(UTC))
    assert waiting(store) == 0


def test_mail_is_handed_in_over_tls_to_a_server_that_proves_its_name_alone(
    store: Store, hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(shutil.which("openssl"), "openssl")
    certificate = tmp_path / "mailbox.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=mailbox", "-addext", "subjectAltName=IP:127.0.0.1"]
    out = ["-keyout", str(certificate), "-out", str(tmp_path / "certificate.pem")]
    subprocess.run([*command.split(), *names, *out], check=True, capture_output=True)
    certificate.write_text(certificate.read_text() + (tmp_path / "certificate.pem").read_text())
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)
    mailbox = MailBox(certificate)
    settings = settings_of(mailbox, hook, tmp_path).model_dump() | {
        "notice_smtp_security": "starttls",
        "notice_smtp_user": USER,
        "notice_smtp_password": "env:MAIL_PASSWORD",
    }
    channels = NoticeChannels.of(Settings.model_validate(settings), url="")
    sender = NoticeSender(store, channels)
    campaign = created(store)
    with store.transaction() as session:
        cancel_campaign(session, campaign.id)
    now = datetime.now(UTC)
    with listening(mailbox):
        sender.send_due(now)
        assert not mailbox.taken, "nobody vouches for its certificate"
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        sender.send_due(now + timedelta(seconds=11))
    assert [to for to, _ in mailbox.taken] == [[OPERATOR]]


def test_what_the_settings_lack_is_said_before_anything_runs(tmp_path: Path) -> None:
    hooked = {"notice_webhook_url": "https://hook.example.org", "notice_webhook_secret": "env:NONE"}
    with pytest.raises(InvalidInput, match="no such variable"):
        NoticeChannels.of(Settings.model_validate(hooked), url="")
    weak = tmp_path / "weak"
    weak.write_text("c2hvcnQ=")
    with pytest.raises(InvalidInput, match="24 to 64 bytes"):
        NoticeChannels.of(
            Settings.model_validate(hooked | {"notice_webhook_secret": f"file:{weak}"}), url=""
        )
    for refused in (
        {"notice_webhook_url": "https://hook.example.org"},
        hooked | {"notice_webhook_secret": "the secret itself"},
        {"notice_to": ["a@example.org"]},
        {"notice_smtp": "mail.example.org"},
        {
            "notice_smtp": "mail.example.org",
            "notice_from": "a@example.org",
            "notice_smtp_user": "a",
            "notice_smtp_password": "env:P",
            "notice_smtp_security": "none",
        },
    ):
        with pytest.raises(ValueError, match=r"notice_|pattern"):
            Settings.model_validate(refused)
