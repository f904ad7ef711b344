"""The catalog's own files, and files that a user names."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from search_spaces.errors import InvalidInput, closest, demand_shallow, suggestion

LARGEST_FILE_BYTES = 1_000_000  # a model's or a machine's file is far smaller than this

SIZE = re.compile(r"\d+(?:\.\d+)?[bmt](?![a-z])")
ALIKE = 0.8


@cache
def packaged_names(folder: str) -> tuple[str, ...]:
    entries = (entry.name for entry in (files(__package__) / folder).iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in entries if name.endswith(".toml")))


def read_packaged(folder: str, name: str) -> dict[str, Any]:
    return tomllib.loads((files(__package__) / folder / f"{name}.toml").read_text("utf-8"))


def known_name(choice: str, known: Iterable[str]) -> str | None:
    return next((name for name in known if name.casefold() == choice.strip().casefold()), None)


def unknown_name(field: str, value: str, known: list[str], *, also: str = "") -> InvalidInput:
    near = [name for name in closest(value, known) if _is_a_slip(value, name)]
    reason = f"no such {field}{suggestion(near)}"
    return InvalidInput(field, value, reason, valid=", ".join(known) + also)


def _is_a_slip(value: str, name: str) -> bool:
    """Return whether a name can be meant: of another size, as in `llama-3-7b`, only where the rest
    is alike. `codellama-34b` is no slip of `llama-3-405b`."""
    family, size = SIZE.split(value.casefold(), maxsplit=1)[0], SIZE.search(value.casefold())
    other, others = SIZE.split(name, maxsplit=1)[0], SIZE.search(name)
    if size is None or others is None or size[0] == others[0]:
        return True
    return SequenceMatcher(None, family, other).ratio() >= ALIKE


def read_text(path: Path, *, field: str) -> str:
    """Return a user's file; raises InvalidInput where it cannot be read as text."""
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise InvalidInput(field, str(path), "the file is larger than 1 MB")
        return path.read_text("utf-8")
    except OSError as error:
        reason = f"the file cannot be read: {error.strerror}"
        raise InvalidInput(field, str(path), reason) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(field, str(path), "the file is not UTF-8 text") from error


def read_toml(path: Path, *, field: str) -> dict[str, Any]:
    return parse_toml(read_text(path, field=field), path, field=field)


def parse_toml(text: str, path: Path, *, field: str) -> dict[str, Any]:
    """Return the table in a user's TOML text; raises InvalidInput, which names `path`, where it is
    not TOML."""
    try:
        table = tomllib.loads(text)
        demand_shallow(table)
    except (ValueError, RecursionError) as error:  # ValueError also for a number of 5,000 digits
        raise InvalidInput(field, str(path), f"the file is not TOML: {error}") from error
    return table
