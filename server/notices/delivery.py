"""Notices as e-mail through the operator's mail server, and as webhooks signed by Standard Webhooks
1.0 (www.standardwebhooks.com), so that receivers can verify them with any of its libraries.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import smtplib
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Any, Literal

import httpx2

from autotune.resolution import strategy_of
from autotune.schemas.choices import CampaignState
from search_spaces.errors import InvalidInput
from server.notices.sender import NotDelivered
from server.store.notices import DueNotice

LONGEST_REASON = 2000
WORDS = {
    CampaignState.DONE: "is done",
    CampaignState.CANCELLED: "was cancelled",
    CampaignState.FAILED: "failed",
    CampaignState.PAUSED: "is paused",
}


def subject(notice: DueNotice) -> str:
    """Return one line: `campaign 7 (22B on Frontier) is done`."""
    name = " ".join(notice.campaign.name.split())
    return f"campaign {notice.campaign.id} ({name}) {WORDS[notice.state]}"


def text(notice: DueNotice, *, url: str) -> str:
    """Return the outcome of the campaign, and its address."""
    campaign = notice.campaign
    lines = [f"{subject(notice)[0].upper()}{subject(notice)[1:]}."]
    if notice.reason:
        lines.append(f"Reason: {notice.reason[:LONGEST_REASON]}")
    lines.append(f"Trials: {campaign.trials}, node-hours: {campaign.node_hours:.2f}")
    if campaign.best_strategy is not None:
        lines.append(f"Recommended: {strategy_of(campaign.best_strategy).short()}")
    if campaign.simulated:
        lines.append("Its trials are simulated: figures are predictions, not measurements.")
    lines += ["", page(notice, url=url)]
    return "\n".join(lines) + "\n"


def document(notice: DueNotice, *, url: str) -> dict[str, Any]:
    """Return the same as the body of a webhook."""
    campaign = notice.campaign
    best = campaign.best_strategy
    return {
        "type": f"campaign.{notice.state}",
        "timestamp": notice.at.isoformat(),
        "data": {
            "campaign_id": campaign.id,
            "name": campaign.name,
            "owner": campaign.owner,
            "state": notice.state,
            "reason": notice.reason[:LONGEST_REASON],
            "simulated": campaign.simulated,
            "trials": campaign.trials,
            "node_hours": campaign.node_hours,
            "objective": campaign.request.objective,
            "best_trial": campaign.best_trial,
            "best_objective": campaign.best_objective,
            "best_strategy": None if best is None else best.model_dump(mode="json"),
            "url": page(notice, url=url),
        },
    }


def page(notice: DueNotice, *, url: str) -> str:
    """Return the address of the campaign's page."""
    return f"{url.rstrip('/')}/campaigns/{notice.campaign.id}"


Security = Literal["starttls", "tls", "none"]
PORTS: dict[Security, int] = {"starttls": 587, "tls": 465, "none": 25}
TIMEOUT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class MailServer:
    """A mail server, with credentials.

    Attributes:
        security: `STARTTLS`, TLS from the start, or none; with TLS the server's certificate is
            verified.
        password: of `user`; both are empty without authentication.
    """

    host: str
    port: int
    security: Security
    user: str
    password: str
    sender: str

    def send(self, notice: DueNotice, to: Sequence[str], *, url: str) -> None:
        """Send a notice to some addresses.

        Raises:
            NotDelivered: the mail server rejected it for an address, or cannot be reached.
        """
        message = EmailMessage()
        message["Subject"] = f"autotune: {subject(notice)}"
        message["From"] = self.sender
        message["To"] = ", ".join(to)
        message["Date"] = notice.at
        message["Message-ID"] = f"<{notice.key}@autotune.invalid>"
        message["Auto-Submitted"] = "auto-generated"  # suppress automatic replies
        message.set_content(text(notice, url=url))
        try:
            with self._session() as session:
                refused = session.send_message(message, from_addr=self.sender, to_addrs=list(to))
        except (OSError, smtplib.SMTPException) as error:
            raise NotDelivered(f"{type(error).__name__}: {error}") from None
        if refused:
            raise NotDelivered("the mail server refused some of the addresses")

    @contextmanager
    def _session(self) -> Iterator[smtplib.SMTP]:
        context = ssl.create_default_context()
        if self.security == "tls":
            connecting: smtplib.SMTP = smtplib.SMTP_SSL(
                self.host, self.port, timeout=TIMEOUT_S, context=context
            )
        else:
            connecting = smtplib.SMTP(self.host, self.port, timeout=TIMEOUT_S)
        with connecting as session:
            if self.security == "starttls":
                session.starttls(context=context)
            if self.user:
                session.login(self.user, self.password)
            yield session


PREFIX = "whsec_"
SHORTEST_KEY, LONGEST_KEY = 24, 64
"""Bytes of a key according to the standard."""


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """A webhook of the operator."""

    address: str
    key: bytes

    @classmethod
    def of(cls, address: str, secret: str) -> Webhook:
        """Return the webhook with this address and base64 secret; raises InvalidInput."""
        try:
            key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
            reason = f"it is not {SHORTEST_KEY} to {LONGEST_KEY} bytes in base64"
            valid = "what `openssl rand -base64 32` prints"
            raise InvalidInput("notice_webhook_secret", None, reason, valid=valid)
        return cls(address=address, key=key)

    def send(self, notice: DueNotice, *, url: str) -> None:
        """Post a notice; redirects are not followed.

        Raises:
            NotDelivered: the response was not 2xx, or there was none.
        """
        body = json.dumps(document(notice, url=url)).encode()
        headers = {"Content-Type": "application/json", **self.signed(notice.key, body)}
        try:
            answer = httpx2.post(
                self.address, content=body, headers=headers, timeout=TIMEOUT_S, trust_env=False
            )
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise NotDelivered(f"{type(error).__name__}: {error}") from None
        if not answer.is_success:
            raise NotDelivered(f"it answered {answer.status_code}")

    def signed(self, key: str, body: bytes) -> dict[str, str]:
        """Return the headers with the notice's id, timestamp and signature."""
        at = str(int(time.time()))
        mac = hmac.new(self.key, f"{key}.{at}.".encode() + body, hashlib.sha256).digest()
        return {
            "webhook-id": key,
            "webhook-timestamp": at,
            "webhook-signature": f"v1,{base64.b64encode(mac).decode()}",
        }
