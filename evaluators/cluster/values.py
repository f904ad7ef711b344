"""What one value of a profile may be, and how it is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from string import Template
from typing import Any

from evaluators.cluster.options import option_fault
from search_spaces.catalog.table import TableField
from search_spaces.errors import InvalidInput, closest

CONTROL = re.compile(r"[\x00-\x1f\x7f]")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_LINE = 3000  # characters: more than any name or path has, and less than sbatch reads
PLACEHOLDER = re.compile(r"\$[{A-Za-z_]")

SET_BY_AUTOTUNE = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
READ_ONLY_IN_BASH = frozenset({"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})


class Reading:
    """One profile as it is read: where it stands, and what had to be refused so far.

    Attributes:
        environ: in which ~ and $NAME are looked up; None leaves them as they are.
    """

    def __init__(self, *, source: str, environ: Mapping[str, str] | None) -> None:
        self.source = source
        self.environ = environ
        self.problems: list[InvalidInput] = []

    def refuse(self, field: str, value: object, reason: str, *, valid: str = "") -> Any:
        """Remember it, and give None for the value: reading goes on, so that all is said."""
        told = f"{reason} (in {self.source})"
        self.problems.append(InvalidInput(field, value, told, valid=valid))


Kind = Callable[[Reading, str, Any], Any]
"""Reads the value of a field: returns it, or refuses it and returns None."""


def plain(field: TableField) -> Kind:
    """A number, or true or false, as a table's field is."""

    def read(reading: Reading, name: str, value: Any) -> Any:
        fault = field.fault(value)
        if fault is not None:
            return reading.refuse(name, value, fault, valid=field.valid)
        return field.kind(value)

    return read


def whole(minimum: int, maximum: int) -> Kind:
    return plain(TableField(name="", kind=int, minimum=minimum, maximum=maximum))


def number(minimum: float, maximum: float, *, unit: str) -> Kind:
    return plain(TableField(name="", kind=float, minimum=minimum, maximum=maximum, unit=unit))


flag = plain(TableField(name="", kind=bool))


def choice(*names: str) -> Kind:
    def read(reading: Reading, name: str, value: Any) -> Any:
        if value in names:
            return value
        near = closest(str(value), names, count=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return reading.refuse(name, value, f"not one of them{hint}", valid=", ".join(names))

    return read


def text(reading: Reading, name: str, value: Any) -> Any:
    """One line of text."""
    if lines(reading, name, value) is None:
        return None
    if CONTROL.search(value):
        return reading.refuse(name, value, "it holds a line break or another control character")
    if len(value) > LONGEST_LINE:
        return reading.refuse(name, value, "too long", valid=f"{LONGEST_LINE} characters")
    return value


def title(reading: Reading, name: str, value: Any) -> Any:
    if value == "":
        return reading.refuse(name, value, "empty", valid="text")
    return text(reading, name, value)


def lines(reading: Reading, name: str, value: Any) -> Any:
    """Text of any number of lines."""
    if not isinstance(value, str):
        return reading.refuse(name, value, "not text; write it in quotes", valid="text")
    if "\0" in value or not _encodable(value):
        return reading.refuse(name, value, "it holds a character that no file can hold")
    return value


def _encodable(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def slurm_name(reading: Reading, name: str, value: Any) -> Any:
    """A name of Slurm's, or of a module: one word; it may be empty."""
    if text(reading, name, value) is None:
        return None
    if re.search(r"\s", value) or value.startswith("-"):
        return reading.refuse(name, value, "not one word", valid="a name without blanks")
    return value


def module(reading: Reading, name: str, value: Any) -> Any:
    if value == "":
        return reading.refuse(name, value, "empty", valid="the name of a module")
    return slurm_name(reading, name, value)


def word(reading: Reading, name: str, value: Any) -> Any:
    """A word of a command line: it may hold blanks; $NAME is replaced."""
    return _expanded(reading, name, text(reading, name, value))


def path(reading: Reading, name: str, value: Any) -> Any:
    """An absolute path once ~ and $NAME are replaced, or nothing."""
    found = _expanded(reading, name, text(reading, name, value))
    if found and not found.startswith("/"):
        valid = (
            "an absolute path; ~ and $NAME may be used" if reading.environ else "an absolute path"
        )
        return reading.refuse(name, value, "a relative path", valid=valid)
    return found


def needed_path(reading: Reading, name: str, value: Any) -> Any:
    if value == "":
        return reading.refuse(name, value, "empty", valid="an absolute path")
    return path(reading, name, value)


def interpreter(reading: Reading, name: str, value: Any) -> Any:
    """A command that is found on the PATH, an absolute path, or nothing."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_.+][A-Za-z0-9_.+-]*", value):
        return value
    return path(reading, name, value)


def _expanded(reading: Reading, name: str, value: str | None) -> Any:
    if value is None or reading.environ is None:
        return value
    home = re.sub(r"^~(?=/|$)", "${HOME}", value)
    try:
        return Template(home).substitute(reading.environ)
    except KeyError as error:
        return reading.refuse(name, value, f"the variable {error.args[0]} is not set here")
    except ValueError:
        return reading.refuse(
            name, value, "a $ without a name", valid="$NAME, ${NAME}, or $$ for $"
        )


def listed(kind: Kind) -> Kind:
    """A list of them, as a tuple."""

    def read(reading: Reading, name: str, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return reading.refuse(name, value, "not a list", valid='a list of texts, ["…", "…"]')
        return tuple(kind(reading, f"{name}[{place}]", item) for place, item in enumerate(value))

    return read


def option(reserved: Mapping[str, str]) -> Kind:
    """An option of a Slurm command as one word."""

    def read(reading: Reading, name: str, value: Any) -> Any:
        found = text(reading, name, value)
        fault = None if found is None else option_fault(found, reserved)
        return found if fault is None else reading.refuse(name, value, fault)

    return read


def variables(reading: Reading, name: str, value: Any) -> Any:
    """Environment variables by name; values stay as they are."""
    if not isinstance(value, Mapping):
        return reading.refuse(name, value, "not a table", valid='NAME = "value"')
    return {key: _variable(reading, f"{name}.{key}", key, item) for key, item in value.items()}


def _variable(reading: Reading, name: str, key: str, value: Any) -> Any:
    if not IDENTIFIER.fullmatch(key):
        valid = "letters, digits and _, not beginning with a digit"
        return reading.refuse(name, value, "not the name of a variable", valid=valid)
    if key in SET_BY_AUTOTUNE | READ_ONLY_IN_BASH:
        setter = "autotune" if key in SET_BY_AUTOTUNE else "bash"
        return reading.refuse(name, value, f"{setter} itself sets this variable")
    found = lines(reading, name, value)
    if found and reading.environ is not None and PLACEHOLDER.search(found):
        reason = "values are exported as they stand, so that a $NAME in one would stay a $NAME"
        return reading.refuse(name, value, reason, valid="export it in environment.prologue")
    return found
