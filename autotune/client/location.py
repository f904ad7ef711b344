"""Which service to use, and how to reach it: by its Unix socket or with a token."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from autotune.client.known_services import (
    FROM_HERE,
    HOST,
    PORT,
    SOCKET,
    config_path,
    configuration,
    is_loopback,
    login_at,
    logins,
    record_of,
    running,
)
from autotune.errors import ServiceUnreachable
from search_spaces.errors import InvalidInput

TOKEN, TOKEN_FILE = "AUTOTUNE_TOKEN", "AUTOTUNE_TOKEN_FILE"
INSECURE = "AUTOTUNE_INSECURE_HTTP"
"""Whether tokens may be sent over HTTP to other machines."""
YES = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, kw_only=True)
class Location:
    """Address and credentials of a service.

    Attributes:
        url: as the user writes it, `http://…` or `unix:/path`.
        socket: path of the Unix socket for requests; None: use the network.
        token: sent with requests; None: no token.
    """

    url: str
    socket: str | None
    token: str | None

    @property
    def base_url(self) -> str:
        """The address of requests."""
        return "http://localhost" if self.socket else self.url


class Authorization(httpx2.Auth):
    """Adds the token to each request.

    Raises `ServiceUnreachable` before a request is sent if there is neither a token nor a Unix
    socket: another user's program may listen at the address.
    """

    def __init__(self, location: Location) -> None:
        self._location = location

    def auth_flow(
        self, request: httpx2.Request
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        if self._location.token is not None:
            request.headers["Authorization"] = f"Bearer {self._location.token}"
        elif self._location.socket is None:
            raise ServiceUnreachable(
                f"no service of yours answers at {self._location.url}: start one with `autotune "
                "serve`, or sign in to another user's with `autotune login` (or with the token in "
                f"{TOKEN} or {TOKEN_FILE})"
            )
        yield request


def locate(url: str | None, *, token_file: Path | None) -> Location:
    """Return the service at `url`, else at AUTOTUNE_URL, else this user's own.

    This user's service on this host is reached through its Unix socket. The token is that of
    `token_file`, AUTOTUNE_TOKEN_FILE, AUTOTUNE_TOKEN or `autotune login`, in this order.

    Raises:
        InvalidInput: the token's file or the configuration cannot be read, or the token would be
            sent unencrypted to another machine.
    """
    url = plain_url(url or default_url())
    record = record_of(url)
    socket = url.removeprefix(SOCKET) if url.startswith(SOCKET) else None
    token = _token(url, token_file)
    if record is not None:
        socket = record.socket
    elif socket is None and token is not None:
        _demand_encryption(url)
    return Location(url=url, socket=socket, token=token)


def default_url() -> str:
    """Return the address to use if none is given.

    In this order: `AUTOTUNE_URL`; the address of `autotune serve` by `AUTOTUNE_HOST` and
    `AUTOTUNE_PORT`, or `host` and `port` of the configuration; this user's running service on this
    host; the last `autotune login`.

    Raises:
        InvalidInput: the configuration is not TOML, and the environment does not give the address.
    """
    if url := os.environ.get("AUTOTUNE_URL"):
        return url
    exported = {name: os.environ.get(f"AUTOTUNE_{name.upper()}") for name in ("host", "port")}
    configured: Mapping[str, Any] = {} if all(exported.values()) else configuration(config_path())
    if not any(exported.values()) and not {"host", "port"} & set(configured):
        mine = next(running(), None)
        if mine is not None:
            return mine.url
        if (login := next(logins(), None)) is not None:
            return login.url
    host = str(exported["host"] or configured.get("host", HOST))
    port = exported["port"] or configured.get("port", PORT)
    host = FROM_HERE.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def plain_url(url: str) -> str:
    """Return an address in the normal form by which services and logins are known."""
    url = url.rstrip("/")
    if url.startswith(SOCKET):
        return url
    address = httpx2.URL(url)
    if address.host == "localhost":  # as the service does, whatever a resolver says
        address = address.copy_with(host="127.0.0.1")
    return str(address).rstrip("/")


def _token(url: str, file: Path | None) -> str | None:
    if named := file or os.environ.get(TOKEN_FILE):
        return token_in(Path(named))
    if known := os.environ.get(TOKEN):
        return known.strip()
    login = login_at(url)
    return login.token if login else None


def _demand_encryption(url: str) -> None:
    parts = httpx2.URL(url)
    allowed = os.environ.get(INSECURE, "").lower() in YES
    if parts.scheme == "http" and not is_loopback(parts.host) and not allowed:
        reason = "HTTP is not encrypted: whoever listens on the network could read the token"
        valid = f"https://…, a tunnel to loopback (ssh -L), or {INSECURE}=true to send it anyway"
        raise InvalidInput("url", url, reason, valid=valid)


def token_in(path: Path) -> str:
    """Return the token in a file, which is plain or a `service.json`. Raises InvalidInput."""
    try:
        text = path.read_text().strip()
        token = json.loads(text)["token"] if text.startswith("{") else text
    except (OSError, ValueError, KeyError) as error:
        reason = f"the token cannot be read: {error}"
        raise InvalidInput("token_file", str(path), reason, valid="a file of this user") from None
    if not isinstance(token, str) or not is_token(token):
        valid = "a token, or a copy of service.json"
        raise InvalidInput("token_file", str(path), "it holds no token", valid=valid)
    return token


def is_token(text: str) -> bool:
    """Return whether a text can be a token: visible ASCII characters without spaces."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text
