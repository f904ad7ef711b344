"""Where the service is: its own settings move the client, too."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

from search_spaces.errors import InvalidInput
from search_spaces.nesting import demand_shallow

CONFIG_VARIABLE = "AUTOTUNE_CONFIG"
HOST, PORT = "127.0.0.1", 8765
"""Where the service listens if nothing says otherwise."""

FROM_HERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""How this machine reaches a service that listens on all of its addresses."""

SOCKET = "unix:"
"""How an address begins that is the path of a Unix socket."""


def is_loopback(host: str) -> bool:
    """Return whether a host's name or address is this machine's own, which no network carries."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def config_path() -> Path:
    """Return the TOML file that is read where it exists; `AUTOTUNE_CONFIG` names another."""
    named = os.environ.get(CONFIG_VARIABLE)
    return Path(named) if named else user_config_path("autotune") / "config.toml"


def configuration(path: Path) -> Mapping[str, Any]:
    """Return what the file says; nothing where there is none. Raises InvalidInput for one that is
    no TOML."""
    try:
        table = tomllib.loads(path.read_text())
        demand_shallow(table)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as error:
        reason = f"the configuration cannot be read: {error}"
        raise InvalidInput("config", str(path), reason, valid="a TOML file") from error
    return table
