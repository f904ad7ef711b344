"""How commands fail: with one sentence and an exit code."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Iterable
from enum import IntEnum
from http import HTTPStatus
from itertools import pairwise
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from autotune.errors import ApiError, ServiceUnreachable
from search_spaces.errors import InvalidInput, InvalidInputs
from server.cli.output import note

EXIT_CODES = (
    "Exit codes: 0 done · 1 failed, or no result · 2 bad input · 3 no service answers · 130 Ctrl-C"
)
BAD_REQUESTS = frozenset({400, 404, 422})
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""An error in a command's arguments; Typer exports a subclass of it, but not the base class."""

SECTIONS = frozenset({"budget", "protocol", "ray", "settings", "slurm", "space", "strategy"})
"""Nested objects of a request whose fields are options of their own."""

BROUGHT_BY = {"slurm": "profile", "ray": "ray_address"}
"""Object that is rejected as a whole -> the option that provides it."""


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    UNREACHABLE = 3
    INTERRUPTED = 130


class Failed(Exception):
    """The command ran without a result; the message is for the user."""


class Command(TyperCommand):
    """A command that prints no traceback, and reports invalid fields by its own flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _flags_without_type(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except UsageError as error:
            raise refused_words(error, ctx, words) from None

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except Exception as error:
            # Typer ends commands with exceptions of its own, and of its bundled Click.
            if type(error).__module__.split(".")[0] in {"typer", "click"}:
                raise
            raise typer.Exit(report(error, ctx)) from None


class Commands(TyperGroup):
    """A group of commands that reports an unknown command in one sentence."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _flags_without_type(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except UsageError as error:
            raise refused_words(error, ctx, []) from None


def _flags_without_type(params: Iterable[Any]) -> list[Any]:
    """Return the parameters, of which --help shows no `<bool>` after a flag, which takes none."""
    shown = list(params)
    for param in shown:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return shown


def refused_words(error: Any, ctx: Any, words: list[str]) -> typer.Exit:
    """Print an error in a command's arguments, and return the exception that exits."""
    reason = str(error.format_message()).rstrip(".")
    option = getattr(error, "option_name", "").lstrip("-")
    if error.__class__ is typer.BadParameter and error.param is not None:
        reason = _refused_value(error, words)
    elif ctx.parent is not None and option in getattr(ctx.parent.command, "commands", {}):
        reason = f"No such option: --{option}; `autotune {option}` is a command of its own"
    reason = f"{reason} (see `{ctx.command_path} --help`)"
    if "--json" in words:
        say_problem([reason], ExitCode.BAD_INPUT)
    else:
        note(f"error: {reason}")
    return typer.Exit(ExitCode.BAD_INPUT)


def _refused_value(error: Any, words: list[str]) -> str:
    parameter = error.param
    reason = str(error.message).removeprefix("Value error, ").removeprefix("Input ").rstrip(".")
    if parameter.param_type_name == "argument":
        return f"{parameter.metavar}: {reason}"
    flag = parameter.opts[0]
    values = [value for word, value in pairwise(words) if word == flag]
    values += [word.partition("=")[2] for word in words if word.startswith(f"{flag}=")]
    value = next((repr(value) for value in values if repr(value) not in reason), None)
    return f"{flag}: {reason}" + (f"; got {value}" if value else "")


def report(error: Exception, ctx: Any) -> ExitCode:
    """Print an error to stderr, and return its exit code."""
    if os.environ.get("AUTOTUNE_DEBUG"):
        sys.excepthook(type(error), error, error.__traceback__)
    problems, code = refused_fields(error)
    sentences = [sentence(each, ctx) for each in problems]
    if not problems:
        reason, code = explained(error)
        sentences = [reason]
    if ctx.params.get("json"):
        say_problem(sentences, code, problems=problems, error=error)
    else:
        for each in sentences:
            note(f"error: {each}")
    return code


STATUSES = {
    ExitCode.BAD_INPUT: HTTPStatus.UNPROCESSABLE_ENTITY,
    ExitCode.UNREACHABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""Error -> the status that the service would have returned; any other error is a local one."""


def say_problem(
    sentences: list[str],
    code: ExitCode,
    *,
    problems: Iterable[InvalidInput] = (),
    error: Exception | None = None,
) -> None:
    """Print an error to stderr as the service would: a problem document on one line."""
    from autotune.schemas.wire import FieldProblem, Problem

    status = STATUSES.get(code, HTTPStatus.INTERNAL_SERVER_ERROR)
    if isinstance(error, ApiError):
        status = HTTPStatus(error.status)
    errors = [
        FieldProblem(
            field=each.field,
            value=json.loads(json.dumps(each.value, default=str)),
            reason=each.reason,
            valid=each.valid,
        )
        for each in problems
    ]
    problem = Problem(
        title=status.phrase, status=status, detail="; ".join(sentences), errors=errors
    )
    note(problem.model_dump_json())


def refused_fields(error: Exception) -> tuple[list[InvalidInput], ExitCode]:
    """Return the fields rejected here or by the service; empty for other errors."""
    if isinstance(error, InvalidInputs):
        return list(error.problems), ExitCode.BAD_INPUT
    if isinstance(error, InvalidInput):
        return [error], ExitCode.BAD_INPUT
    # Imported late, as elsewhere here: most commands succeed and do not need the error classes.
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        from autotune.schemas.validation import field_problems

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
    """Return a sentence for the user on an error without a field, and the exit code."""
    if isinstance(error, ApiError):
        refused = error.status in BAD_REQUESTS
        return str(error), ExitCode.BAD_INPUT if refused else ExitCode.FAILED
    if isinstance(error, ServiceUnreachable):
        return str(error), ExitCode.UNREACHABLE
    if isinstance(error, Failed | TimeoutError):
        return str(error), ExitCode.FAILED
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        if error.errno == errno.ENOSPC:
            reason = f"the disk is full{where}; free some space, or choose another folder"
            return reason, ExitCode.FAILED
        return f"{error.strerror or error}{where}", ExitCode.FAILED
    if database_reason := _of_the_database(error):
        return database_reason, ExitCode.FAILED
    first_line = (str(error).splitlines() or [""])[0]
    reason = f"unexpected error: {type(error).__name__}: {first_line}"
    return f"{reason} (set AUTOTUNE_DEBUG=1 to see where)", ExitCode.FAILED


def flag(problem: InvalidInput, ctx: Any) -> str:
    """Return the flag of an invalid field, with the path inside its value.

    A field without an option, or with a value from elsewhere (the environment, a file), keeps its
    own name.
    """
    section, _, inner = problem.field.partition(".")
    field, _, within = inner.partition(".")
    parameters = {parameter.name: parameter for parameter in ctx.command.params}
    typed = {name for name, value in ctx.params.items() if value not in (None, [], ())}
    if not (field in parameters and (section in SECTIONS or field in typed)):
        field, within = section if inner else BROUGHT_BY.get(section, section), inner
    if field not in parameters or (field not in typed and problem.value is not None):
        return problem.field
    parameter = parameters[field]
    name = parameter.opts[0]
    if parameter.param_type_name == "argument":
        name = parameter.metavar.strip("[]")
    return f"{name}: {within}" if within else name


def in_flags(text: str, ctx: Any) -> str:
    """Replace names of fields in a text by the flags of the command.

    Names of several words are always replaced; a name that is also a common word (`nodes`) only in
    backquotes or before an equals sign.
    """
    flags = {each.name: each.opts[0] for each in ctx.command.params if each.opts[0][:2] == "--"}

    def replaced(found: re.Match[str]) -> str:
        quoted, name, sign = found.groups()
        name = quoted or name
        named = quoted or sign or "_" in name
        return f"{flags[name]}{sign or ''}" if named and name in flags else found[0]

    return re.sub(r"`(\w+)`|(?<![\w'.-])(\w+)(=|(?![\w'.]))", replaced, text)


def sentence(problem: InvalidInput, ctx: Any) -> str:
    """Return which field is invalid, why, its value, and what would be valid."""
    name = flag(problem, ctx)
    of_a_file = ": " in name  # fields of these keep their names
    reason, valid = (
        text if of_a_file else in_flags(text, ctx) for text in (problem.reason, problem.valid)
    )
    details = "; ".join(
        [
            *([] if problem.value is None else [f"got {problem.value!r}"]),
            *([f"valid: {valid}"] if valid else []),
        ]
    )
    return f"{name}: {reason}" + (f" ({details})" if details else "")


def _of_the_database(error: Exception) -> str | None:
    from sqlalchemy.exc import DBAPIError

    from server.store.errors import is_full_disk

    if not isinstance(error, DBAPIError):
        return None
    if is_full_disk(error):
        return "the disk of the database is full; free some space, or choose another --data-dir"
    cause = str(error.orig).strip().splitlines()[0]
    return f"the database cannot be used: {cause}; `autotune doctor` checks it"
