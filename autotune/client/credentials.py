"""Two sides that show each other that they know a token, which neither of them sends.

A request carries a credential: whose token it is, and a signature, by what follows from that token,
of its line, of the address that the client believes to speak with, of the time and of a number that
is used once. The answer carries a proof: an HMAC of that credential. Whoever listens at the
service's port in its stead can neither make the proof nor use the credential at the service, which
takes none that is for another address.

The service keeps of a user's token what tells a signature and makes a proof, and from which no
signature can be made: StoredKey and ServerKey of SCRAM (RFC 5802, section 3), without a salt or
iterations, as a token has 256 random bits. (HMAC-SHA-256: RFC 2104, FIPS 180-4.)
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Self

import httpx2

from autotune.errors import ServiceNotProven

SCHEME = "Bearer "
MARK = "autotune2"
PROOF = "Autotune-Proof"
OF_USER = re.compile(r"(.+)\.[A-Za-z0-9_-]{43}")
LIFE_S = 300
"""Of a credential, so that the clocks of two machines may differ."""
PROVEN = "autotune.proven"
BUSY = frozenset({429, 502, 503, 504})
"""May be said by anybody: all that follows is that the request is sent again."""


def new_token(user: str = "") -> str:
    """Return a token of 32 random bytes, in letters; that of a user begins with the name."""
    secret = secrets.token_urlsafe(32)
    return f"{user}.{secret}" if user else secret


def user_of(token: str) -> str:
    """Return whose a token is; empty for that of a service's own user."""
    found = OF_USER.fullmatch(token)
    return found[1] if found else ""


def hmac_of(key: bytes, *parts: str) -> bytes:
    """Return the HMAC of the parts, none of which has a line break."""
    return hmac.digest(key, "\n".join(parts).encode(), hashlib.sha256)


@dataclass(frozen=True, kw_only=True)
class Credential:
    """What one request carries.

    Attributes:
        user: whose token signed it; empty: the service's own user's.
        issued_s: seconds since 1970.
        signed: ClientProof of RFC 5802: the client's key, hidden by an HMAC of what it is for.
    """

    user: str
    issued_s: int
    nonce: str
    signed: str

    @classmethod
    def issue(cls, token: str, *, audience: str, method: str, target: str) -> Self:
        """Return a new one for a request to the service at `audience`, a `host:port`."""
        plain = cls(
            user=user_of(token),
            issued_s=int(time.time()),
            nonce=secrets.token_hex(16),
            signed="",
        )
        client_key = _client_key(token)
        signature = plain.signature(
            hashlib.sha256(client_key).digest(), audience=audience, method=method, target=target
        )
        signed = _xor(client_key, signature).hex()
        return cls(user=plain.user, issued_s=plain.issued_s, nonce=plain.nonce, signed=signed)

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Return the credential that a text is; None for any other text."""
        mark, *parts = text.split(".", 4)
        if mark != MARK or len(parts) != 4 or not (parts[0].isascii() and parts[0].isdecimal()):
            return None
        return cls(issued_s=int(parts[0][:20]), nonce=parts[1], signed=parts[2], user=parts[3])

    def __str__(self) -> str:
        return f"{MARK}.{self.issued_s}.{self.nonce}.{self.signed}.{self.user}"

    def signature(self, stored_key: bytes, *, audience: str, method: str, target: str) -> bytes:
        """Return what hides the client's key in a credential for this request."""
        issued = str(self.issued_s)
        return hmac_of(stored_key, MARK, self.user, issued, self.nonce, audience, method, target)

    @property
    def is_current(self) -> bool:
        return abs(time.time() - self.issued_s) <= LIFE_S


@dataclass(frozen=True, kw_only=True)
class TokenKeys:
    """What a service keeps of a token.

    Attributes:
        stored_key: SHA-256 of the client's key, in hexadecimal digits.
        server_key: makes proofs, in hexadecimal digits.
    """

    stored_key: str
    server_key: str

    @classmethod
    def of(cls, token: str) -> Self:
        return cls(
            stored_key=hashlib.sha256(_client_key(token)).hexdigest(),
            server_key=hmac_of(token.encode(), "Server Key").hex(),
        )

    def are_of(self, token: str) -> bool:
        """Return whether this is the token."""
        return hmac.compare_digest(TokenKeys.of(token).stored_key, self.stored_key)

    def signed(self, credential: Credential, *, audience: str, method: str, target: str) -> bool:
        """Return whether somebody who knows the token issued the credential for this request."""
        stored_key = bytes.fromhex(self.stored_key)
        signature = credential.signature(
            stored_key, audience=audience, method=method, target=target
        )
        try:
            client_key = _xor(bytes.fromhex(credential.signed), signature)
        except ValueError:
            return False
        return hmac.compare_digest(hashlib.sha256(client_key).digest(), stored_key)

    def proof(self, credential: Credential, *, status: int) -> str:
        """Return what the answer with this status carries."""
        key = bytes.fromhex(self.server_key)
        return hmac_of(key, "answer", str(credential), str(status)).hex()


def _client_key(token: str) -> bytes:
    return hmac_of(token.encode(), "Client Key")


def _xor(one: bytes, other: bytes) -> bytes:
    """Raises ValueError for bytes of different number."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


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
                "known here: `autotune login` keeps the one that you were given, AUTOTUNE_TOKEN "
                "names it, or --token-file a copy of its service.json; one of your own starts with "
                "`autotune serve`"
            )
        target = request.url.raw_path.decode("ascii")
        credential = Credential.issue(
            token, audience=self._audience, method=request.method, target=target
        )
        request.headers["Authorization"] = f"{SCHEME}{credential}"
        response = yield request
        expected = TokenKeys.of(token).proof(credential, status=response.status_code)
        proven = hmac.compare_digest(expected, response.headers.get(PROOF, ""))
        response.extensions[PROVEN] = proven
        if not proven and response.status_code not in BUSY:
            raise ServiceNotProven(
                f"what answers at {self._url} did not prove that it is the autotune service whose "
                f"token was used (status {response.status_code}): another program listens there, "
                "the service was started again and has another token, a user's was renewed (then "
                "`autotune login`, or `autotune logout`), or it is reached under another address "
                "than its own"
            )
