"""The formats of logs, as `formats.toml` has them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, kw_only=True)
class LineFormat:
    """A report on iterations: lines with `sign` that match `pattern`; a weak one counts only where
    no other matches."""

    trainer: str
    sign: str
    pattern: re.Pattern[str]
    adapter: str = ""
    weak: bool = False


@dataclass(frozen=True, kw_only=True)
class Formats:
    """All formats, compiled.

    Attributes:
        names: name of a key, in lower case -> what it states.
        setting: finds keys with their values in a line.
        columns: name of a column -> what it has.
        timers: name of a timer -> what it measures.
        parts_of_signs: a line is compared with `signs` only if it contains one of these.
    """

    lines: tuple[LineFormat, ...]
    more: Mapping[str, re.Pattern[str]]
    facts: tuple[re.Pattern[str], ...]
    names: Mapping[str, str]
    setting: re.Pattern[str]
    columns: Mapping[str, str]
    signs: Mapping[str, re.Pattern[str]]
    timers: Mapping[str, str]
    parts_of_signs: tuple[str, ...]


@cache
def formats() -> Formats:
    table: dict[str, Any] = tomllib.loads(
        (files(__package__) / "formats.toml").read_text("utf-8"),
    )
    names, short = _inverse(table["keys"]), _inverse(table["short"])
    return Formats(
        lines=tuple(
            LineFormat(**{**each, "pattern": re.compile(each["pattern"])}) for each in table["line"]
        ),
        more={name: re.compile(text) for name, text in table["more"].items()},
        facts=tuple(map(re.compile, table["facts"]["patterns"])),
        names=names | short,
        setting=_setting(names, short),
        columns=_inverse(table["columns"]),
        signs={name: re.compile(text) for name, text in table["signs"].items()},
        timers=_inverse(table["timers"]),
        parts_of_signs=tuple(table["parts_of_signs"]["words"]),
    )


def _inverse(table: Mapping[str, list[str]]) -> dict[str, str]:
    return {name: meaning for meaning, names in table.items() for name in names}


def _setting(names: Mapping[str, str], short: Mapping[str, str]) -> re.Pattern[str]:
    """`key ..... 8`, `"key": 8`, `section.key=8`, `KEY=8`, `--key 8`, `--key`."""
    long = "|".join(sorted((each.replace("_", "[_-]") for each in names), key=len, reverse=True))
    value = r"""["']?(?P<{}>[-\w/](?:[-\w+/]|\.(?!\.))*)"""
    return re.compile(
        rf"""(?<![\w-])(?:"""
        rf"""--(?:[\w-]+\.)*(?P<flag>{long})(?:[ =]+(?!--){value.format("argument")}|(?=\s|$))"""
        rf"""|(?:\w+[./])*(?P<key>{long})["']?\ *(?:\.{{3,}}|[:=])\ *{value.format("setting")}"""
        rf"""|(?P<short>{"|".join(short)})\ *[:=]\ *(?P<number>\d+)\b)""",
        re.IGNORECASE,
    )
