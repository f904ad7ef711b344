"""Where services are: by the environment and the configuration, by the record that each writes on
this host, and by this user's logins."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from pathlib import Path
from socket import gethostname
from typing import Any, Self
from urllib.parse import quote, urlsplit

from platformdirs import user_config_path, user_data_path, user_state_path

from autotune.files import write_whole
from search_spaces.errors import InvalidInput, demand_shallow

CONFIG_VARIABLE = "AUTOTUNE_CONFIG"
HOST, PORT = "127.0.0.1", 8765
"""Where the service listens if nothing says otherwise."""

FROM_HERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""How this machine reaches a service that listens on all of its addresses."""

SOCKET = "unix:"
"""How an address begins that is the path of a Unix socket."""

NAME = "service.json"
ROOT = 0


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is the loopback interface."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def config_path() -> Path:
    """Return the path of the configuration file: `AUTOTUNE_CONFIG`, or the default path."""
    named = os.environ.get(CONFIG_VARIABLE)
    return Path(named) if named else user_config_path("autotune") / "config.toml"


def configuration(path: Path) -> Mapping[str, Any]:
    """Return the configuration; empty without a file. Raises InvalidInput if it is not TOML."""
    try:
        table = tomllib.loads(path.read_text())
        demand_shallow(table)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as error:
        reason = f"the configuration cannot be read: {error}"
        raise InvalidInput("config", str(path), reason, valid="a TOML file") from error
    return table


@dataclass(frozen=True, kw_only=True)
class KnownService:
    """The fields of a JSON file about a service.

    Attributes:
        url: where it listens: `http://127.0.0.1:8765`, or `unix:` and a path.
        token: sent with requests.
    """

    url: str
    token: str

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return the content of a file; None if there is none, it is invalid, or another user than
        this one and root owns it."""
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_uid not in {os.geteuid(), ROOT}:
                    return None
                fields = json.load(file)
                return cls(**{name: fields[name] for name in cls.__dataclass_fields__})
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, path: Path) -> Path:
        """Write the file, readable only by this user; raises OSError."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return write_whole(path, json.dumps(asdict(self)) + "\n", private=True)


@dataclass(frozen=True, kw_only=True)
class ServiceRecord(KnownService):
    """A service that runs on `host`, or ran until it was killed; its token grants all rights.

    Attributes:
        socket: path of the Unix socket, which only its user can open.
        pid: of its process, on `host`.
    """

    socket: str
    pid: int
    host: str

    @property
    def is_here(self) -> bool:
        """Return whether its process runs on this host and its socket belongs to this user."""
        try:
            os.kill(self.pid, 0)
            owner = Path(self.socket).stat().st_uid
        except OSError:
            return False
        return self.host == gethostname() and owner in {os.geteuid(), ROOT}

    def remove(self, path: Path) -> None:
        """Remove the file if it is still this service's."""
        if ServiceRecord.read(path) == self:
            path.unlink(missing_ok=True)


def data_folder() -> Path:
    """Return the default data folder of `autotune serve`. Raises InvalidInput if the configuration
    is invalid."""
    if named := os.environ.get("AUTOTUNE_DATA_DIR"):
        return Path(named).expanduser()
    folder = configuration(config_path()).get("data_dir")
    return Path(folder).expanduser() if isinstance(folder, str) else user_data_path("autotune")


def known_folder() -> Path:
    """Return the folder of records of all of this user's services."""
    return user_state_path("autotune") / "services"


def known_path(url: str) -> Path:
    """Return the file of the record of a service on this host, by address."""
    parts = urlsplit(url)
    name = f"{parts.hostname}-{parts.port}" if parts.hostname else parts.path.replace("/", "-")
    return known_folder() / f"{gethostname()}-{name}.json"


def record_of(url: str) -> ServiceRecord | None:
    """Return the record of this user's service at an address on this host; None if none runs."""
    for path in (data_folder() / NAME, known_path(url)):
        record = ServiceRecord.read(path)
        if record is not None and record.url == url and record.is_here:
            return record
    return None


def running() -> Iterator[ServiceRecord]:
    """Yield this user's services on this host, the data folder's first."""
    others = known_folder().glob(f"{gethostname()}-*.json")
    for path in (data_folder() / NAME, *sorted(others)):
        record = ServiceRecord.read(path)
        if record is not None and record.is_here:
            yield record


class Login(KnownService):
    """This user's token for a shared service."""

    def keep(self) -> Path:
        """Store it; raises OSError."""
        return self.write(login_path(self.url))


def login_path(url: str) -> Path:
    """Return the file of the login for an address."""
    return user_state_path("autotune") / "logins" / f"{quote(url, safe='')}.json"


def login_at(url: str) -> Login | None:
    """Return this user's login for an address; None if there is none."""
    login = Login.read(login_path(url))
    return login if login is not None and login.url == url else None


def logins() -> Iterator[Login]:
    """Yield this user's logins, newest first."""
    files = (user_state_path("autotune") / "logins").glob("*.json")
    for path in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True):
        if (login := Login.read(path)) is not None:
            yield login
