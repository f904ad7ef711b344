"""How a command ends when it cannot do what was asked: one sentence and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from enum import IntEnum
from typing import Any

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from autotune.errors import ApiError, ServiceUnreachable
from search_spaces.errors import InvalidInput, InvalidInputs
from server.cli.output import note

EXIT_CODES = (
    "Exit codes: 0 done · 1 failed, or no result · 2 bad input · 3 no service answers · 130 Ctrl-C"
)
BAD_REQUESTS = frozenset({400, 404, 422})


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    UNREACHABLE = 3
    INTERRUPTED = 130


class Failed(Exception):
    """The command ran and there is no result; the message says why, for people."""


class Commands(TyperGroup):
    """A group of commands none of which shows a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(Exit.INTERRUPTED) from None
        except Exception as error:
            if is_typers_own(error):
                raise
            raise typer.Exit(report(error)) from None


def report(error: Exception) -> Exit:
    """Say on stderr what was wrong; the exit code that goes with it."""
    if os.environ.get("AUTOTUNE_DEBUG"):
        sys.excepthook(type(error), error, error.__traceback__)
    sentences, code = explained(error)
    for sentence in sentences:
        note(f"error: {sentence}")
    return code


def explained(error: Exception) -> tuple[list[str], Exit]:
    """Sentences for people, and the exit code."""
    if isinstance(error, InvalidInputs):
        return [_field(p.field, p.value, p.reason, p.valid) for p in error.problems], Exit.BAD_INPUT
    if isinstance(error, InvalidInput):
        return [_field(error.field, error.value, error.reason, error.valid)], Exit.BAD_INPUT
    if isinstance(error, ApiError):
        return _refused(error)
    if isinstance(error, ServiceUnreachable):
        return [str(error)], Exit.UNREACHABLE
    if isinstance(error, Failed | TimeoutError):
        return [str(error)], Exit.FAILED
    if isinstance(error, ValidationError):
        return _refused_settings(error)
    if isinstance(error, OSError):
        return [_of_the_system(error)], Exit.FAILED
    return [_of_the_database(error) or _unexpected(error)], Exit.FAILED


def _field(field: str, value: object, reason: str, valid: str) -> str:
    got = "" if value is None else f"got {value!r}"
    return f"{field}: {reason}" + _in_brackets([got, f"valid: {valid}" if valid else ""])


def _in_brackets(parts: list[str]) -> str:
    said = "; ".join(part for part in parts if part)
    return f" ({said})" if said else ""


def _refused(error: ApiError) -> tuple[list[str], Exit]:
    problems = error.problem.get("errors") or []
    sentences = [
        _field(p.get("field", "?"), p.get("value"), p.get("reason", ""), p.get("valid", ""))
        for p in problems
    ]
    code = Exit.BAD_INPUT if error.status in BAD_REQUESTS else Exit.FAILED
    return sentences or [str(error)], code


def _refused_settings(error: ValidationError) -> tuple[list[str], Exit]:
    # Late, as below: most commands end well and need not load what only names their errors.
    from autotune.validation import field_problems

    problems = field_problems(error.errors())
    return [_field(p.field, p.value, p.reason, p.valid) for p in problems], Exit.BAD_INPUT


def _of_the_database(error: Exception) -> str | None:
    """None for an error that is none of the database's."""
    from sqlalchemy.exc import DBAPIError

    from server.problems import is_full_disk

    if not isinstance(error, DBAPIError):
        return None
    if is_full_disk(error):
        return "the disk of the database is full; free some space, or choose another --data-dir"
    cause = str(error.orig).strip().splitlines()[0]
    return f"the database cannot be used: {cause}; `autotune doctor` looks into it"


def _of_the_system(error: OSError) -> str:
    where = f": {error.filename}" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return f"the disk is full{where}; free some space, or choose another folder"
    return f"{error.strerror or error}{where}"


def _unexpected(error: Exception) -> str:
    first_line = (str(error).splitlines() or [""])[0]
    return (
        f"this should not have happened: {type(error).__name__}: {first_line} "
        "(set AUTOTUNE_DEBUG=1 to see where)"
    )


def is_typers_own(error: Exception) -> bool:
    """Typer ends commands, and says what was wrong with their options, by exceptions of its own."""
    return type(error).__module__.split(".")[0] in {"typer", "click"}
