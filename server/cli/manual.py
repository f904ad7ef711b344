"""Generate the manual from the commands: `python -m server.cli.manual > docs/cli.md`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from server.cli.application import EXAMPLES, app
from server.cli.failures import EXIT_CODES

HEAD = f"""# The command line

Every command has `--help`. With `--json`, all commands but `serve`, `runner` and `demo` print one
JSON document to stdout; progress, notes and errors go to stderr. An error is one sentence with the
flag, the reason, the value, and what would be valid. With `--json`, it is one line on stderr: a
problem document like the service's (`title`, `status`, `detail`, `errors`).

{EXIT_CODES}
"""


def manual() -> str:
    """Return Markdown with one section per command: its options and examples."""
    commands = dict(loaded_commands(get_command(app)))
    sections = ("\n".join(_section(name, command)) for name, command in commands.items())
    return "\n".join([HEAD, *sections])


def loaded_commands(group: Any, *, words: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each command by its whole name; a group precedes its commands."""
    for name, late in group.commands.items():
        yield f"{words}{name}", late.loaded
        if isinstance(late.loaded, TyperGroup):
            yield from loaded_commands(late.loaded, words=f"{words}{name} ")


def _section(name: str, command: Any) -> Iterator[str]:
    """Yield the lines about a command; `name` is its whole name."""
    arguments = [f" {p.metavar}" for p in command.params if p.param_type_name == "argument"]
    yield f"## autotune {name}{''.join(arguments)}\n"
    yield _plain(command.help) + "\n"
    options = [
        p for p in command.params if p.param_type_name == "option" and "--help" not in p.opts
    ]
    if options:
        yield "| option | meaning |\n|---|---|"
        for option in options:
            flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
            meaning = _plain(option.help).replace("|", "\\|")
            if option.default not in (None, False, True) and "[default" not in meaning:
                meaning += f" [default: {option.default}]"
            yield f"| {flags} | {meaning} |"
        yield ""
    if name in EXAMPLES:
        yield "```sh\n" + "\n".join(EXAMPLES[name]) + "\n```\n"


def _plain(text: str | None) -> str:
    """Return the text without Rich markup, each paragraph on one line."""
    paragraphs = (text or "").replace("\\[", "[").strip().split("\n\n")
    return "\n\n".join(re.sub(r"\s+", " ", paragraph).strip() for paragraph in paragraphs)


if __name__ == "__main__":
    sys.stdout.write(manual())
