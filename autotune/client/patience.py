"""Timeouts and retries of requests."""

from __future__ import annotations

import random
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypedDict

import httpx2

from autotune.client.known_services import is_loopback
from autotune.client.location import Authorization, Location
from autotune.errors import ServiceUnreachable

ANSWER_S = 30.0
"""For one read or write: an answer takes milliseconds, an archive a second."""
CONNECT_S = 5.0

REFUSED_FOR_NOW = frozenset({429, 503})
LOST_ON_THE_WAY = frozenset({502, 504})
UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
"""How OpenSSL names a certificate that no known authority signed, or that is another host's."""


def timeout(read_s: float) -> httpx2.Timeout:
    return httpx2.Timeout(ANSWER_S, connect=CONNECT_S, read=read_s)


class ConnectionSettings(TypedDict):
    """Keyword arguments of the HTTP client."""

    base_url: str
    auth: Authorization
    timeout: httpx2.Timeout
    trust_env: bool
    verify: ssl.SSLContext | bool


def settings(location: Location) -> ConnectionSettings:
    """Return the settings of the HTTP client for a service."""
    url = httpx2.URL(location.base_url)
    return {
        "base_url": location.base_url,
        "auth": Authorization(location),
        "timeout": timeout(ANSWER_S),
        # A cluster's login shell often names a proxy, which cannot reach this machine's loopback.
        "trust_env": not is_loopback(url.host),
        # Reading the authorities takes a tenth of a second; without TLS there is nothing to verify.
        "verify": httpx2.create_ssl_context() if url.scheme == "https" else False,
    }


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How often a request is tried, and the waits in between.

    Attributes:
        attempts: maximum number, including the first.
        first_wait_s: doubled after each attempt, plus up to half of it at random, so that clients
            that failed together do not retry together.
        longest_wait_s: a longer Retry-After is not waited for; the refusal is raised.
        stream_attempts: how often in a row a broken stream of events is reopened, at most one
            second apart, so that a restarting service is waited for.
    """

    attempts: int = 4
    first_wait_s: float = 0.1
    longest_wait_s: float = 60.0
    stream_attempts: int = 30

    def after_error(self, error: Exception, *, attempt: int, repeatable: bool) -> float | None:
        """Return the seconds to wait before the next attempt; None if there should be none.

        Args:
            repeatable: whether the request is idempotent, and may be sent again after the
                connection broke without an answer.
        """
        never_arrived = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        if attempt >= self.attempts or not (never_arrived or repeatable):
            return None
        return self.pause_s(attempt)

    def after_answer(
        self, response: httpx2.Response, *, attempt: int, repeatable: bool
    ) -> float | None:
        """Return the seconds to wait before the next attempt; None if `response` is final."""
        status = response.status_code
        again = status in REFUSED_FOR_NOW or (status in LOST_ON_THE_WAY and repeatable)
        if attempt >= self.attempts or not again:
            return None
        wanted_s = retry_after_s(response.headers, now=datetime.now(UTC))
        wait_s = self.pause_s(attempt) if wanted_s is None else wanted_s
        return wait_s if wait_s <= self.longest_wait_s else None

    def pause_s(self, attempt: int) -> float:
        backoff_s: float = self.first_wait_s * 2 ** (attempt - 1)
        return min(self.longest_wait_s, backoff_s * (1 + random.random() / 2))


def retry_after_s(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Return the seconds of a `Retry-After` header, given as a number or a date.

    None if it is missing or invalid (RFC 9110, section 10.2.3).
    """
    value = headers.get("retry-after", "").strip()
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
    except (ValueError, TypeError):
        return None


def unreachable(base_url: str, error: Exception) -> ServiceUnreachable:
    """Return the error that names the address and what to do."""
    cause = re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
    if UNTRUSTED in cause:
        return ServiceUnreachable(
            f"the certificate of {base_url} cannot be verified ({cause}): nothing was sent; "
            "SSL_CERT_FILE names a file with the certificate of the authority that signed it"
        )
    return ServiceUnreachable(
        f"no autotune service answers at {base_url} ({cause}): start one with `autotune serve`, "
        "or give another address by base_url, --url or AUTOTUNE_URL"
    )
