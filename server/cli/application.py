"""The application with all commands, each imported when it runs, so that --help is fast."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

from server.cli.examples import EXAMPLES
from server.cli.failures import EXIT_CODES, Command, Commands
from server.cli.output import text

PACKAGE = "server.cli.commands"


class LateCommand(TyperCommand):
    """A command or a group of commands, which is imported when it is called or listed."""

    def __init__(self, words: str, *, module: str, panel: str | None = None) -> None:
        """Name the command.

        Args:
            words: its whole name, of two words in a group.
            module: within server.cli.commands. Its function has the command's name, with an
                underscore behind it if Python has this name; a group has its help in HELP.
        """
        super().__init__(name=words.split()[-1], rich_help_panel=panel)
        self._words = words
        self._module = module

    @cached_property
    def _content(self) -> Any:
        """The function of a command, the help of a group."""
        module, name = import_module(f"{PACKAGE}.{self._module}"), self.name
        if self._words in GROUPS:
            return module.HELP
        return getattr(module, f"{name}_", None) or getattr(module, f"{name}")

    @property
    def summary(self) -> str:
        """The first paragraph of the help."""
        content = self._content
        told = content if isinstance(content, str) else content.__doc__
        return " ".join(told.split("\n\n")[0].split())

    @cached_property
    def loaded(self) -> Any:
        """The command with its options, or the group with its commands."""
        lines = EXAMPLES.get(self._words, ())
        epilog = "\n\n".join(["Examples:", *(f"  {line}" for line in lines)]) if lines else None
        if self._words in GROUPS:
            return LateCommands(
                name=self.name,
                help=self._content,
                epilog=epilog,
                no_args_is_help=True,
                rich_markup_mode="rich",
                commands={
                    name: LateCommand(f"{self._words} {name}", module=self._module)
                    for name in GROUPS[self._words]
                },
            )
        from server.cli.options import flattened

        single = typer.Typer(
            add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False
        )
        single.command(self.name, cls=Command, epilog=epilog)(flattened(self._content))
        return get_command(single)

    def make_context(self, *arguments: Any, **others: Any) -> Any:
        """Create the context of the loaded command; a group runs the command of this context."""
        return self.loaded.make_context(*arguments, **others)


class LateCommands(Commands):
    """A group of late commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names; help and completion, which list them, show the summaries as well."""
        for command in self.commands.values():
            if isinstance(command, LateCommand):
                command.help = command.summary
        return list(super().list_commands(ctx))


HELP = f"""Find the parallel layout with which a language model trains fastest, by short real runs.

Start with `autotune demo`. Or run `autotune serve` in one terminal, and in another:

  autotune submit --model tiny --machine local --space tiny-local --max-trials 10 --watch\n
  autotune best 1 --out run/

On a cluster with Slurm, `autotune doctor --profile NAME` says what is missing, and
`autotune submit --profile NAME ...` runs trials as jobs.

Without a service, `autotune predict`, `autotune sweep` and `autotune space` answer from the cost
model; `autotune calibrations` fits it to a machine by the trials that a service has run.

{EXIT_CODES}
"""

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "Start": {"demo": "serve", "serve": "serve", "runner": "serve"},
    "Campaigns": {
        "submit": "submit",
        "watch": "watching",
        "top": "watching",
        "ls": "campaigns",
        "show": "campaigns",
        "open": "campaigns",
        "best": "watching",
        "repeat": "submit",
        "compare": "figures",
        "plot": "figures",
        "pause": "campaigns",
        "resume": "campaigns",
        "cancel": "campaigns",
        "extend": "campaigns",
        "rm": "campaigns",
        "calibrations": "calibrations",
    },
    "Without a service": {
        "predict": "predictions",
        "sweep": "predictions",
        "space": "predictions",
        "scaling": "scaling",
        "models": "catalog",
        "machines": "catalog",
        "profiles": "catalog",
        "adapter": "adapters",
        "doctor": "doctor",
    },
    "A service that a group shares": {
        "login": "users",
        "logout": "users",
        "whoami": "users",
        "audit": "users",
        "users": "users",
    },
    "Backup and storage": {"backup": "storage", "restore": "storage", "prune": "storage"},
}
"""Panel of --help -> command -> its module."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "calibrations": ("list", "show", "fit", "export", "import", "delete"),
    "adapter": ("list", "show", "new", "check"),
    "users": ("list", "add", "change", "renew", "revoke"),
}
"""Group -> its commands."""


class AllCommands(LateCommands):
    """The command `autotune` with all of its subcommands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            name: LateCommand(name, module=module, panel=panel)
            for panel, modules in COMMANDS.items()
            for name, module in modules.items()
        }


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        text(f"autotune {version('autotune')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """The callback before every command."""


app = typer.Typer(
    cls=AllCommands,
    help=HELP,
    callback=_root,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command that was typed."""
    app(prog_name="autotune")
