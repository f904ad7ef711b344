"""Where an adapter puts a value: an argument, a variable, a word `KEY=VALUE`, or a place in a file.

Values are set in the user's own JSON, YAML or TOML; in files of any other kind texts are replaced.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from evaluators.adapter.names import IDENTIFIER, SET_BY_AUTOTUNE
from evaluators.adapter.template import written
from search_spaces.errors import InvalidInput, closest, demand_shallow

FORMATS = ("json", "yaml", "yml", "toml")

FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
WORD = re.compile(r"[A-Za-z0-9_+~.@/-]+")


@dataclass(frozen=True, kw_only=True)
class Place:
    """A parsed place.

    Attributes:
        name: the argument with its dashes, the variable, or the dotted key.
        file: file of the key; otherwise empty. In a file without keys the name is a text to
            replace.
    """

    kind: Literal["argument", "variable", "key", "word"]
    name: str
    file: str = ""

    @classmethod
    def read(cls, text: str) -> Place:
        """Parse a key of `[set]`; raises InvalidInput (`set`)."""
        if re.fullmatch(r"--?[^\s:]+", text):
            return cls(kind="argument", name=text)
        if text.startswith("$"):
            return cls(kind="variable", name=_variable(text))
        file, colon, key = text.partition(":")
        if colon:
            return cls(kind="key", name=_key(text, file, key), file=_file(text, file))
        if not WORD.fullmatch(text):
            valid = "--argument, $VARIABLE, file.json:dotted.key, or a word for word=value"
            raise InvalidInput("set", text, "not a place", valid=valid)
        return cls(kind="word", name=text)


def _variable(text: str) -> str:
    name = text[1:]
    if not IDENTIFIER.fullmatch(name):
        valid = "$ with letters, digits and _"
        raise InvalidInput("set", text, "not the name of a variable", valid=valid)
    if name in SET_BY_AUTOTUNE:
        raise InvalidInput("set", text, "autotune itself sets this variable for each rank")
    return name


def _file(text: str, file: str) -> str:
    if not FILE_NAME.fullmatch(file):
        valid = "a name without folders"
        raise InvalidInput("set", text, "not a file that can be written", valid=valid)
    return file


def _key(text: str, file: str, key: str) -> str:
    if not is_table(file) and key:
        return key
    if not key or not all(key.split(".")):
        valid = "names with dots between them"
        raise InvalidInput("set", text, "not a key of a file", valid=valid)
    return key


@dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """A file's keys as nested tables.

    Attributes:
        format: one of FORMATS.
    """

    format: str
    table: dict[str, Any]

    @classmethod
    def read(cls, name: str, text: str) -> ConfigFile:
        """Parse a text in the format of the file name's suffix.

        Raises:
            InvalidInput: it has another format, or is not a table.
        """
        ending = name.rpartition(".")[2]
        if ending not in FORMATS:
            raise InvalidInput("file", name, "unknown format", valid=", ".join(FORMATS))
        try:
            table = _parsed(ending, text)
            demand_shallow(table)
        except (ValueError, RecursionError, yaml.YAMLError) as error:
            message = " ".join(str(error).split())
            raise InvalidInput("file", name, f"not {ending.upper()}: {message}") from error
        if not isinstance(table, dict):
            raise InvalidInput("file", name, "it has no keys at the top level")
        return cls(format=ending, table=table)

    def put(self, key: str, value: Any) -> None:
        """Set a dotted key; raises InvalidInput if a part of it is not a table."""
        *tables, last = key.split(".")
        table = self.table
        for name in tables:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise InvalidInput("file", key, f"{name} is not a table in the user's file")
        table[last] = value

    def drop(self, key: str) -> None:
        """Remove a dotted key, if it exists."""
        *tables, last = key.split(".")
        table: Any = self.table
        for name in tables:
            table = table.get(name) if isinstance(table, dict) else None
        if isinstance(table, dict):
            table.pop(last, None)

    @property
    def text(self) -> str:
        """The file's text. Comments of the user's file are lost."""
        if self.format == "json":
            return json.dumps(self.table, indent=2) + "\n"
        if self.format == "toml":
            return "\n".join(_toml_lines(self.table, ())).lstrip("\n") + "\n"
        written: str = yaml.safe_dump(self.table, sort_keys=False)
        return written


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """A user's own file of any other kind (Python, INI, XML, gin), in which texts are replaced.

    Attributes:
        own: as the user wrote it.
        replaced: text that occurs in it once -> its replacement.
    """

    own: str
    replaced: dict[str, str] = field(default_factory=dict)

    def put(self, key: str, value: Any) -> None:
        """Replace a text; raises InvalidInput unless it occurs exactly once."""
        several = value if isinstance(value, list | tuple) else [value]
        count = self.own.count(key)
        if count != 1:
            near = closest(key, [line.strip() for line in self.own.splitlines()], count=1)
            hint = f"; did you mean {near[0]!r}?" if near and not count else ""
            reason = f"it occurs {count} times in the user's file, but must occur once{hint}"
            raise InvalidInput("file", key, reason)
        self.replaced[key] = ",".join(map(written, several))

    def drop(self, key: str) -> None:
        self.put(key, None)

    @property
    def text(self) -> str:
        if not self.replaced:
            return self.own
        # If two texts share a beginning, the longer one matches first.
        texts = sorted(self.replaced, key=len, reverse=True)
        pattern = "|".join(map(re.escape, texts))
        return re.sub(pattern, lambda match: self.replaced[match[0]], self.own)


def is_table(name: str) -> bool:
    return name.rpartition(".")[2] in FORMATS


def file_of(name: str, text: str) -> ConfigFile | TextFile:
    return ConfigFile.read(name, text) if is_table(name) else TextFile(own=text)


def _parsed(ending: str, text: str) -> Any:
    if ending == "json":
        return json.loads(text)
    if ending == "toml":
        return tomllib.loads(text)
    return yaml.safe_load(text) or {}


def _toml_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    if path and (not table or not all(isinstance(value, dict) for value in table.values())):
        yield f"\n[{'.'.join(map(_toml_key, path))}]"
    for name, value in table.items():
        if value is not None and not isinstance(value, dict):
            yield f"{_toml_key(name)} = {_toml_value(value)}"
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _toml_lines(value, (*path, name))


def _toml_key(name: str) -> str:
    plain = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if plain else _toml_text(name)


def _toml_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, dict):
        pairs = (f"{_toml_key(name)} = {_toml_value(each)}" for name, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, str):
        return _toml_text(value)
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
