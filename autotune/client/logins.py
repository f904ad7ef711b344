"""This user's tokens for shared services, stored in files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

from platformdirs import user_state_path

from autotune.files import write_whole


@dataclass(frozen=True, kw_only=True)
class Login:
    """The token of a user for one service.

    Attributes:
        url: address of the service.
    """

    url: str
    token: str

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return what a file of this user says; None where there is none."""
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    return None
                said = json.load(file)
                return cls(url=said["url"], token=said["token"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self) -> Path:
        """Write it for this user alone; raises OSError."""
        path = login_path(self.url)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return write_whole(path, json.dumps(asdict(self)) + "\n", private=True)


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
