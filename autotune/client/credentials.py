"""Two sides that show each other that they know a token, which neither of them sends.

A request carries a credential: an HMAC, by the token, of its line, of the address that the
client believes to speak with, of the time and of a number that is used once. The answer carries a
proof: an HMAC of that credential. Whoever listens at the service's port in its stead can neither
make the proof nor use the credential at the service, which takes none that is for another address.
(HMAC-SHA-256: RFC 2104, FIPS 180-4.)
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Self

import httpx2

from autotune.errors import ServiceNotProven

SCHEME = "Bearer "
MARK = "autotune1"
PROOF = "Autotune-Proof"
LIFE_S = 300
"""Of a credential, so that the clocks of two machines may differ."""
PROVEN = "autotune.proven"
BUSY = frozenset({429, 502, 503, 504})
"""May be said by anybody: all that follows is that the request is sent again."""


def seal(token: str, *parts: str) -> str:
    """Return the HMAC of the parts, none of which has a line break."""
    return hmac.new(token.encode(), "\n".join(parts).encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Credential:
    """What one request carries.

    Attributes:
        issued_s: seconds since 1970.
    """

    issued_s: int
    nonce: str
    sealed: str

    @classmethod
    def issue(cls, token: str, *, audience: str, method: str, target: str) -> Self:
        """Return a new one for a request to the service at `audience`, a `host:port`."""
        issued_s, nonce = int(time.time()), secrets.token_hex(16)
        sealed = seal(token, MARK, str(issued_s), nonce, audience, method, target)
        return cls(issued_s=issued_s, nonce=nonce, sealed=sealed)

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Return the credential that a text is; None for any other text."""
        mark, *parts = text.split(".")
        if mark != MARK or len(parts) != 3 or not (parts[0].isascii() and parts[0].isdecimal()):
            return None
        return cls(issued_s=int(parts[0][:20]), nonce=parts[1], sealed=parts[2])

    def __str__(self) -> str:
        return f"{MARK}.{self.issued_s}.{self.nonce}.{self.sealed}"

    def is_of(self, token: str, *, audience: str, method: str, target: str) -> bool:
        """Return whether somebody who knows the token issued it for this request."""
        expected = seal(token, MARK, str(self.issued_s), self.nonce, audience, method, target)
        return hmac.compare_digest(expected.encode(), self.sealed.encode())

    @property
    def is_current(self) -> bool:
        return abs(time.time() - self.issued_s) <= LIFE_S

    def proof(self, token: str, *, status: int) -> str:
        """Return what the answer with this status carries."""
        return seal(token, "answer", str(self), str(status))


class TokenAuth(httpx2.Auth):
    """Gives each request its credential, and believes no answer without the proof.

    Args:
        token: returns the token as it is now; None where none is known.
        audience: `host:port` of the service.
        url: of the service, for what is said.

    Requests raise `ServiceNotProven` where no token is known, or what answers does not know it.
    """

    def __init__(self, token: Callable[[], str | None], *, audience: str, url: str) -> None:
        self._token = token
        self._audience = audience
        self._url = url

    def auth_flow(
        self, request: httpx2.Request
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        token = self._token()
        if token is None:
            # Nothing of the request is for a stranger: this only asks whether anybody is there.
            yield httpx2.Request("GET", request.url.copy_with(raw_path=b"/healthz"))
            token = self._token()  # of a service that has only just started
        if token is None:
            raise ServiceNotProven(
                f"what answers at {self._url} is no service of yours, or one whose token is not "
                "known here: give it in AUTOTUNE_TOKEN, or by --token-file, a copy of its "
                "service.json; one of your own starts with `autotune serve`"
            )
        target = request.url.raw_path.decode("ascii")
        credential = Credential.issue(
            token, audience=self._audience, method=request.method, target=target
        )
        request.headers["Authorization"] = f"{SCHEME}{credential}"
        response = yield request
        expected = credential.proof(token, status=response.status_code)
        proven = hmac.compare_digest(expected, response.headers.get(PROOF, ""))
        response.extensions[PROVEN] = proven
        if not proven and response.status_code not in BUSY:
            raise ServiceNotProven(
                f"what answers at {self._url} did not prove that it is the autotune service whose "
                f"token was used (status {response.status_code}): another program listens there, "
                "the service was started again and has another token, or it is reached under "
                "another address than its own"
            )
