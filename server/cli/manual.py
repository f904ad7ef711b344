"""Generate the manual from the commands: `python -m server.cli.manual > docs/cli.md`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from server.cli.application import EXAMPLES, app
from server.cli.failures import EXIT_CODES

HEAD = f"""# Commands

Every command of `autotune` with its options and examples, as `--help` prints them.

With `--json` a command prints one JSON document to stdout; progress, notes and errors go to stderr.
An error is one sentence with the flag, its value, the reason, and what is valid; with `--json`, a
problem document like the service's (`title`, `status`, `detail`, `errors`).

{EXIT_CODES}
"""
SHARED = """## Options of several commands

A command lists those that it takes by name, with a default of its own in parentheses.
"""


def manual() -> str:
    """Return Markdown with one section per command; options of several commands stand once."""
    commands = dict(loaded_commands(get_command(app)))
    defaults: dict[tuple[str, str], list[str]] = {}
    for option in (option for command in commands.values() for option in _options(command)):
        flags, meaning, default = _described(option)
        defaults.setdefault((flags, meaning), []).append(default)
    shared = {
        option: each[0] if len(set(each)) == 1 else ""
        for option, each in defaults.items()
        if len(each) > 1
    }
    sections = ("\n".join(_section(name, each, shared)) for name, each in commands.items())
    lines = (_line(*option, default) for option, default in shared.items())
    return "\n".join([HEAD, *sections, SHARED, *lines, ""])


def loaded_commands(group: Any, *, words: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each command by its whole name; a group precedes its commands."""
    for name, late in group.commands.items():
        yield f"{words}{name}", late.loaded
        if isinstance(late.loaded, TyperGroup):
            yield from loaded_commands(late.loaded, words=f"{words}{name} ")


def _section(name: str, command: Any, shared: Mapping[tuple[str, str], str]) -> Iterator[str]:
    arguments = [f" {p.metavar}" for p in command.params if p.param_type_name == "argument"]
    yield f"## autotune {name}{''.join(arguments)}\n"
    yield _plain(command.help) + "\n"
    own, others = [], []
    for flags, meaning, default in map(_described, _options(command)):
        if (flags, meaning) not in shared:
            own.append(_line(flags, meaning, default))
        elif default == shared[flags, meaning]:
            others.append(flags)
        else:
            others.append(f"{flags} ({default})")
    if own:
        yield "\n".join(own) + "\n"
    if others:
        yield f"Shared: {', '.join(others)}\n"
    if name in EXAMPLES:
        yield "```sh\n" + "\n".join(EXAMPLES[name]) + "\n```\n"


def _options(command: Any) -> list[Any]:
    return [p for p in command.params if p.param_type_name == "option" and "--help" not in p.opts]


def _described(option: Any) -> tuple[str, str, str]:
    flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    meaning, _, default = _plain(option.help).partition(" [default: ")
    if not default and option.default not in (None, False, True):
        default = str(option.default)
    return flags, meaning, default.removesuffix("]")


def _line(flags: str, meaning: str, default: str) -> str:
    return f"- {flags}: {meaning}" + (f" [default: {default}]" if default else "")


def _plain(text: str | None) -> str:
    paragraphs = (text or "").replace("\\[", "[").strip().split("\n\n")
    return "\n\n".join(re.sub(r"\s+", " ", paragraph).strip() for paragraph in paragraphs)


if __name__ == "__main__":
    sys.stdout.write(manual())
