"""How a command ends when it cannot do what was asked: one sentence and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable
from enum import IntEnum
from typing import Any

import typer
from pydantic import ValidationError
from typer.core import TyperCommand

from autotune.errors import ApiError, ServiceUnreachable
from search_spaces.errors import InvalidInput, InvalidInputs
from server.cli.output import note

EXIT_CODES = (
    "Exit codes: 0 done · 1 failed, or no result · 2 bad input · 3 no service answers · 130 Ctrl-C"
)
BAD_REQUESTS = frozenset({400, 404, 422})
SECTIONS = frozenset({"budget", "protocol", "slurm", "space", "strategy"})
"""Objects within a request whose fields are options of their own."""

BROUGHT_BY = {"slurm": "profile"}
"""Objects that are refused as a whole: the option that brings them."""


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    UNREACHABLE = 3
    INTERRUPTED = 130


class Failed(Exception):
    """The command ran and there is no result; the message says why, for people."""


class Command(TyperCommand):
    """A command that shows no traceback, and names refused fields by its own flags."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except Exception as error:
            # Typer ends commands by exceptions of its own, and of the Click that it carries.
            if type(error).__module__.split(".")[0] in {"typer", "click"}:
                raise
            raise typer.Exit(report(error, ctx)) from None


def report(error: Exception, ctx: Any) -> ExitCode:
    """Say on stderr what was wrong, and return the exit code that goes with it."""
    if os.environ.get("AUTOTUNE_DEBUG"):
        sys.excepthook(type(error), error, error.__traceback__)
    problems, code = refused_fields(error)
    for problem in problems:
        note(f"error: {sentence(problem, flag(problem, ctx))}")
    if not problems:
        reason, code = explained(error)
        note(f"error: {reason}")
    return code


def refused_fields(error: Exception) -> tuple[list[InvalidInput], ExitCode]:
    """Return the fields that were refused, here or by the service; none for another failure."""
    if isinstance(error, InvalidInputs):
        return list(error.problems), ExitCode.BAD_INPUT
    if isinstance(error, InvalidInput):
        return [error], ExitCode.BAD_INPUT
    if isinstance(error, ValidationError):
        # Late, as below: most commands end well and need not load what only names their errors.
        from autotune.validation import field_problems

        problems: Iterable[Any] = field_problems(error.errors())
        fields = [InvalidInput(p.field, p.value, p.reason, valid=p.valid) for p in problems]
        return fields, ExitCode.BAD_INPUT
    if isinstance(error, ApiError):
        fields = [
            InvalidInput(
                each.get("field", "?"),
                each.get("value"),
                each.get("reason", ""),
                valid=each.get("valid", ""),
            )
            for each in error.problem.get("errors") or []
        ]
        return fields, ExitCode.BAD_INPUT if error.status in BAD_REQUESTS else ExitCode.FAILED
    return [], ExitCode.FAILED


def explained(error: Exception) -> tuple[str, ExitCode]:
    """Return a sentence for people on an error that is none of a field, and the exit code."""
    if isinstance(error, ApiError):
        refused = error.status in BAD_REQUESTS
        return str(error), ExitCode.BAD_INPUT if refused else ExitCode.FAILED
    if isinstance(error, ServiceUnreachable):
        return str(error), ExitCode.UNREACHABLE
    if isinstance(error, Failed | TimeoutError):
        return str(error), ExitCode.FAILED
    if isinstance(error, OSError):
        return _of_the_system(error), ExitCode.FAILED
    return _of_the_database(error) or _unexpected(error), ExitCode.FAILED


def flag(problem: InvalidInput, ctx: Any) -> str:
    """Return the flag of the refused field, with what is refused within its value.

    A field that has no option, or whose value came from elsewhere (the environment, a file), keeps
    its own name.
    """
    section, _, inner = problem.field.partition(".")
    path = inner if section in SECTIONS and inner else problem.field
    name, _, within = path.partition(".")
    name = BROUGHT_BY.get(name, name)
    for parameter in ctx.command.params:
        left_out = ctx.params.get(parameter.name) in (None, ())
        if parameter.name == name and (problem.value is None or not left_out):
            shown = parameter.metavar if parameter.param_type_name == "argument" else None
            return ": ".join(filter(None, [shown or parameter.opts[0], within]))
    return problem.field


def sentence(problem: InvalidInput, name: str) -> str:
    """Return which field is refused, why, what it was, and what would do."""
    details = "; ".join(
        [
            *([] if problem.value is None else [f"got {problem.value!r}"]),
            *([f"valid: {problem.valid}"] if problem.valid else []),
        ]
    )
    return f"{name}: {problem.reason}" + (f" ({details})" if details else "")


def _of_the_system(error: OSError) -> str:
    where = f": {error.filename}" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return f"the disk is full{where}; free some space, or choose another folder"
    return f"{error.strerror or error}{where}"


def _of_the_database(error: Exception) -> str | None:
    """Return None for an error that is none of the database's."""
    from sqlalchemy.exc import DBAPIError

    from server.problems import is_full_disk

    if not isinstance(error, DBAPIError):
        return None
    if is_full_disk(error):
        return "the disk of the database is full; free some space, or choose another --data-dir"
    cause = str(error.orig).strip().splitlines()[0]
    return f"the database cannot be used: {cause}; `autotune doctor` looks into it"


def _unexpected(error: Exception) -> str:
    first_line = (str(error).splitlines() or [""])[0]
    return (
        f"this should not have happened: {type(error).__name__}: {first_line} "
        "(set AUTOTUNE_DEBUG=1 to see where)"
    )
