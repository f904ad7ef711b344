"""Which service is meant, how it is reached, and what shows that it is this one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from autotune.client.address import FROM_HERE, HOST, PORT, SOCKET, config_path, configuration
from autotune.client.credentials import TokenAuth
from autotune.client.logins import login_at, logins
from autotune.client.service_record import ServiceRecord, record_of, running
from search_spaces.errors import InvalidInput

TOKEN, TOKEN_FILE = "AUTOTUNE_TOKEN", "AUTOTUNE_TOKEN_FILE"


@dataclass(frozen=True, kw_only=True)
class Location:
    """A service as a client reaches it.

    Attributes:
        url: as the user knows it, `http://…` or `unix:/path`.
        base_url: of requests.
        socket: path of the Unix socket that they go through; None: through the network.
        auth: what requests carry and answers are held against.
    """

    url: str
    base_url: str
    socket: str | None
    auth: TokenAuth


def locate(url: str | None, *, token_file: Path | None) -> Location:
    """Return the service at an address, else at AUTOTUNE_URL, else this user's own.

    Its token is that of `token_file`, else of AUTOTUNE_TOKEN_FILE or AUTOTUNE_TOKEN, else that of
    `autotune login` there, else what this user's own service wrote down; these two are read again
    with each request.

    Raises:
        InvalidInput: the file of the token, or the configuration, cannot be read.
    """
    url = (url or default_url()).rstrip("/")
    if url.startswith(SOCKET):
        path = url.removeprefix(SOCKET)
        audience, base_url, socket = "localhost:80", "http://localhost", path
    else:
        base_url, socket = plain_url(url), None
        audience = audience_of(httpx2.URL(base_url))
    given = token_file or (Path(named) if (named := os.environ.get(TOKEN_FILE)) else None)
    token: Callable[[], str | None]
    if given is not None:
        said, its_audience = token_in(given)
        token, audience = (lambda: said), its_audience or audience
    elif known := os.environ.get(TOKEN):
        token = known.strip
    else:
        token = _of_user(url if socket else base_url)
    auth = TokenAuth(token, audience=audience, url=url)
    return Location(url=url, base_url=base_url, socket=socket, auth=auth)


def default_url() -> str:
    """Return `AUTOTUNE_URL`; else the address at which `autotune serve` would listen here, by
    `AUTOTUNE_HOST` and `AUTOTUNE_PORT`, or `host` and `port` of the configuration; where none of
    these says anything, that of this user's service that runs on this host, else of the last
    `autotune login`.

    Raises:
        InvalidInput: the configuration is no TOML, and nothing of the environment says it all.
    """
    if url := os.environ.get("AUTOTUNE_URL"):
        return url
    said = {name: os.environ.get(f"AUTOTUNE_{name.upper()}") for name in ("host", "port")}
    kept: Mapping[str, Any] = {} if all(said.values()) else configuration(config_path())
    if not any(said.values()) and not {"host", "port"} & set(kept):
        mine = next(running(), None)
        if mine is not None:
            return mine.url
        if (login := next(logins(), None)) is not None:
            return login.url
    host = str(said["host"] or kept.get("host", HOST))
    port = said["port"] or kept.get("port", PORT)
    host = FROM_HERE.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def audience_of(url: httpx2.URL) -> str:
    """Return `host:port` of an address, as a credential names it."""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{host.lower()}:{url.port or {'http': 80, 'https': 443}.get(url.scheme, 80)}"


def plain_url(url: str) -> str:
    """Return an address as services and logins are known by it."""
    url = url.rstrip("/")
    if url.startswith(SOCKET):
        return url
    address = httpx2.URL(url)
    if address.host == "localhost":  # as the service does, whatever a resolver says
        address = address.copy_with(host="127.0.0.1")
    return str(address).rstrip("/")


def _of_user(url: str) -> Callable[[], str | None]:
    def token() -> str | None:
        login = login_at(url)
        if login is not None:
            return login.token
        record = record_of(url)
        return record.token if record else None

    return token


def token_in(path: Path) -> tuple[str, str | None]:
    """Return a token and whom it is for: None where the file holds the token alone."""
    record = ServiceRecord.read(path)
    if record is not None:
        is_url = not record.url.startswith(SOCKET)
        return record.token, audience_of(httpx2.URL(record.url)) if is_url else None
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = f"the token cannot be read: {error}"
        raise InvalidInput("token_file", str(path), reason, valid="a file of this user") from None
    if not token.isascii() or not token.isprintable() or not token or " " in token:
        valid = "a token, or a copy of service.json"
        raise InvalidInput("token_file", str(path), "it holds no token", valid=valid)
    return token, None
