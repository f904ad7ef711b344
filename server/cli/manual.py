"""The manual, written from the commands themselves: `python -m server.cli.manual > docs/cli.md`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from server.cli.application import COMMANDS, app
from server.cli.examples import EXAMPLES
from server.cli.failures import EXIT_CODES

HEAD = f"""# The command line

Every command has `--help`, and all but `serve`, `runner` and `demo` print one JSON document to
stdout with `--json`; progress, notes and errors go to stderr. An error is one sentence.

{EXIT_CODES}
"""


def manual() -> str:
    """Markdown: a section for each command with its options and examples."""
    group: Any = get_command(app)
    names = (name for commands in COMMANDS.values() for name in commands)
    return "\n".join([HEAD, *("\n".join(_section(group.commands[name])) for name in names)])


def _section(command: Any) -> Iterator[str]:
    arguments = [f" {p.metavar}" for p in command.params if p.param_type_name == "argument"]
    yield f"## autotune {command.name}{''.join(arguments)}\n"
    yield _plain(command.help) + "\n"
    options = [
        p for p in command.params if p.param_type_name == "option" and "--help" not in p.opts
    ]
    if options:
        yield "| option | meaning |\n|---|---|"
        yield from (_row(option) for option in options)
        yield ""
    if command.name in EXAMPLES:
        yield "```sh\n" + "\n".join(EXAMPLES[command.name]) + "\n```\n"


def _row(option: Any) -> str:
    flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    shown = "" if option.default in (None, False, True) else f" [default: {option.default}]"
    meaning = _plain(option.help).replace("|", "\\|")
    return f"| {flags} | {meaning}{'' if '[default' in meaning else shown} |"


def _plain(text: str | None) -> str:
    """Without Rich's escapes, each paragraph on one line."""
    paragraphs = (text or "").replace("\\[", "[").strip().split("\n\n")
    return "\n\n".join(re.sub(r"\s+", " ", paragraph).strip() for paragraph in paragraphs)


if __name__ == "__main__":
    sys.stdout.write(manual())
