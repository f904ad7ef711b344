"""Where an adapter puts a value: an argument, a variable, a key of a file, or a word
`KEY=VALUE`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from evaluators.adapter.config_file import is_table
from evaluators.cluster.values import IDENTIFIER, SET_BY_AUTOTUNE
from search_spaces.errors import InvalidInput

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
