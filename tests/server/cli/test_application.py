"""All commands: their help, its examples, the manual, and how fast they start."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from server.cli.application import COMMANDS, GROUPS
from server.cli.examples import EXAMPLES
from server.cli.manual import manual
from tests.server.cli.conftest import Autotune

MANUAL = Path(__file__).parents[3] / "docs" / "cli.md"


def test_the_manual_is_what_the_commands_say() -> None:
    assert MANUAL.read_text() == manual(), "run: python -m server.cli.manual > docs/cli.md"


def names() -> list[str]:
    """Of all commands, as they are typed."""
    single = [name for panel in COMMANDS.values() for name in panel]
    double = [f"{group} {name}" for group, members in GROUPS.items() for name in members]
    return [*single, *GROUPS, *double]


@pytest.mark.parametrize("name", names())
def test_every_command_teaches(alone: Autotune, name: str) -> None:
    ran = alone(*name.split(), "--help")
    assert ran.code == 0
    for example in EXAMPLES.get(name, ()):
        assert example[:60] in ran.out


def test_the_help_names_the_exit_codes(alone: Autotune) -> None:
    words = " ".join(alone("--help").out.split())
    assert "2 bad input" in words
    assert "3 no service answers" in words


def test_the_version(alone: Autotune) -> None:
    ran = alone("--version")
    assert (ran.code, ran.out) == (0, f"autotune {version('autotune')}\n")


@pytest.mark.parametrize("example", [*EXAMPLES["predict"], *EXAMPLES["sweep"], *EXAMPLES["space"]])
def test_the_examples_run(alone: Autotune, example: str) -> None:
    ran = alone(*shlex.split(example)[1:])
    assert ran.code == 0, ran.err
    assert ran.out


def test_the_commands_start_without_heavy_libraries() -> None:
    heavy = {"torch", "deephyper", "deepspeed", "sklearn", "scipy", "altair", "vl_convert"}
    service = {"sqlalchemy", "fastapi", "uvicorn"}
    program = f"import server.cli, sys; print({heavy | service} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
