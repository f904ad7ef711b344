"""Webhooks signed by Standard Webhooks 1.0 (www.standardwebhooks.com), so that receivers can verify
them with any of its libraries."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from dataclasses import dataclass

import httpx2

from search_spaces.errors import InvalidInput
from server.notices.notice_text import NotDelivered, document
from server.store.notices import DueNotice

PREFIX = "whsec_"
SHORTEST_KEY, LONGEST_KEY = 24, 64
"""Bytes of a key according to the standard."""
TIMEOUT_S = 10.0


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
