"""The address of the service, read from the same environment variables and file as its own
settings."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

from search_spaces.errors import InvalidInput, demand_shallow

CONFIG_VARIABLE = "AUTOTUNE_CONFIG"
HOST, PORT = "127.0.0.1", 8765
"""Where the service listens if nothing says otherwise."""

FROM_HERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""How this machine reaches a service that listens on all of its addresses."""

SOCKET = "unix:"
"""How an address begins that is the path of a Unix socket."""


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
