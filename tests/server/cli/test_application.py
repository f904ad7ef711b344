"""All commands: their help, its examples, the manual, and how fast they start."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from rich.text import Text
from typer.main import get_command

from server.cli.application import EXAMPLES, app
from server.cli.manual import loaded_commands, manual
from tests.server.cli.conftest import Autotune

MANUAL = Path(__file__).parents[3] / "docs" / "cli.md"


def test_the_manual_is_what_the_commands_say() -> None:
    assert MANUAL.read_text() == manual(), "run: python -m server.cli.manual > docs/cli.md"


COMMANDS = dict(loaded_commands(get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_teaches(alone: Autotune, name: str) -> None:
    ran = alone.done(*name.split(), "--help")
    for example in EXAMPLES.get(name, ()):
        assert example[:60] in ran.out


@pytest.mark.parametrize("name", COMMANDS)
def test_no_bracket_of_a_help_is_read_as_markup(name: str) -> None:
    command = COMMANDS[name]
    helps = [command.help, *(param.help for param in command.params)]
    for text in filter(None, helps):
        assert Text.from_markup(text).plain == text.replace("\\[", "[")


def test_a_flag_has_no_type_in_the_help(alone: Autotune) -> None:
    shown = alone("adapter", "check", "--help").out
    assert "--batches" in shown
    assert "<bool>" not in shown + alone("--help").out
    assert "<path>" in shown


def test_a_list_of_commands_says_what_each_does(alone: Autotune) -> None:
    for group, name, summary in (
        ("", "resume", "Continue a paused campaign."),
        ("", "users", "Manage the users of a shared service"),
        ("users", "revoke", "Revoke a user's access, including browser sessions"),
    ):
        lines = alone(*group.split(), "--help").out.splitlines()
        assert any(name in line and summary in line for line in lines)


def test_the_help_names_the_exit_codes(alone: Autotune) -> None:
    words = " ".join(alone("--help").out.split())
    assert "2 bad input" in words
    assert "3 no service answers" in words


def test_the_version(alone: Autotune) -> None:
    ran = alone("--version")
    assert (ran.code, ran.out) == (0, f"autotune {version('autotune')}\n")


@pytest.mark.parametrize("example", [*EXAMPLES["predict"], *EXAMPLES["sweep"]])
def test_the_examples_run(alone: Autotune, example: str) -> None:
    ran = alone.done(*shlex.split(example)[1:])
    assert ran.out


def test_help_and_service_do_not_wait_for_unneeded_libraries() -> None:
    """What is not imported takes no time: a figure would depend on the machine."""
    program = """
import sys
from server.cli.application import app
for command in sys.argv[1:]:
    app([*command.split(), "--help"], standalone_mode=False)
    print(*sys.modules, file=sys.stderr)
import server.service
print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "", *COMMANDS],
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {"torch", "deephyper", "deepspeed", "sklearn", "scipy", "vl_convert", "ray"}
    service = {"sqlalchemy", "fastapi", "uvicorn", "structlog", "prometheus_client"}
    questions = {"numpy", "httpx2", "asyncio", "autotune.client", "autotune.schemas.wire"}
    answers = {"server.cli.tables.elements", "search_spaces.space"}
    _of_all, *of_each, of_service = (set(line.split()) for line in done.stderr.splitlines())
    for name, imported in zip(COMMANDS, of_each, strict=True):
        assert imported & (heavy | service | questions | answers) == set(), name
    assert of_service & (heavy - {"scipy"} | {"scipy.special", "scipy.linalg"}) == set()
