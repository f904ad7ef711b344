"""The application with all commands, each imported when it runs, so that --help is fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class CommandPlace:
    """The location of a command, and its summary before it is imported.

    Attributes:
        place: `module:function` within server.cli.commands.
        sentence: the first sentence of the function's docstring.
    """

    place: str
    sentence: str

    def load(self) -> Any:
        module, _, name = self.place.partition(":")
        return getattr(import_module(f"{PACKAGE}.{module}"), name)


@dataclass(frozen=True)
class GroupPlace(CommandPlace):
    """A group of two-word commands.

    Attributes:
        place: `module:constant` of its help.
        commands: the second words.
    """

    commands: Mapping[str, CommandPlace]


class LateCommand(TyperCommand):
    """A command that shows its summary, and is loaded when it is called.

    `name` is its whole name, of two words in a group.
    """

    def __init__(self, place: CommandPlace, *, name: str, panel: str | None = None) -> None:
        super().__init__(name=name.split()[-1], help=place.sentence, rich_help_panel=panel)
        self._place = place
        self._words = name

    @cached_property
    def loaded(self) -> Any:
        """The command with its options, or the group with its commands."""
        content = self._place.load()
        lines = EXAMPLES.get(self._words, ())
        epilog = "\n\n".join(["Examples:", *(f"  {line}" for line in lines)]) if lines else None
        if isinstance(self._place, GroupPlace):
            return Commands(
                name=self.name,
                help=content,
                epilog=epilog,
                no_args_is_help=True,
                rich_markup_mode="rich",
                commands={
                    name: LateCommand(place, name=f"{self._words} {name}")
                    for name, place in self._place.commands.items()
                },
            )
        from server.cli.options import flattened

        single = typer.Typer(
            add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False
        )
        single.command(self.name, cls=Command, epilog=epilog)(flattened(content))
        return get_command(single)

    def make_context(self, *arguments: Any, **others: Any) -> Any:
        """Create the context of the loaded command; a group runs the command of this context."""
        return self.loaded.make_context(*arguments, **others)


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

COMMANDS: dict[str, dict[str, CommandPlace]] = {
    "Start": {
        "demo": CommandPlace(
            "serve:demo",
            "Start a service, tune three small examples, and print the recommendations.",
        ),
        "serve": CommandPlace(
            "serve:serve",
            "Serve the REST API and the pages, and run campaigns, until Ctrl-C.",
        ),
        "runner": CommandPlace(
            "serve:runner",
            "Run campaigns for a service with the same database, without serving.",
        ),
    },
    "Campaigns": {
        "submit": CommandPlace(
            "submit:submit",
            "Submit a campaign: find the fastest layout of a model on these nodes.",
        ),
        "watch": CommandPlace(
            "watching:watch",
            "Follow a campaign until it ends or pauses, then print the recommendation.",
        ),
        "top": CommandPlace(
            "watching:top",
            "Show live which runners, campaigns and trials run, and why others wait, until Ctrl-C.",
        ),
        "ls": CommandPlace(
            "campaigns:ls",
            "List campaigns, newest first, with their outcomes.",
        ),
        "show": CommandPlace(
            "campaigns:show",
            "Show a campaign and its trials, or one trial, with the reason for each choice.",
        ),
        "open": CommandPlace(
            "campaigns:open_",
            "Open a campaign's page in a browser, and print its one-time address.",
        ),
        "best": CommandPlace(
            "watching:best",
            "Print a campaign's recommendation, and write its launch files.",
        ),
        "repeat": CommandPlace(
            "submit:repeat",
            "Submit a campaign again with another search, to compare both.",
        ),
        "compare": CommandPlace(
            "figures:compare",
            "Compare campaigns: differing settings, results, and which found the best.",
        ),
        "plot": CommandPlace(
            "figures:plot",
            "Print or draw a figure of a campaign, as a table, a picture or data.",
        ),
        "pause": CommandPlace(
            "campaigns:pause",
            "Start no further trials until `autotune resume`; running trials continue.",
        ),
        "resume": CommandPlace("campaigns:resume", "Continue a paused campaign."),
        "cancel": CommandPlace(
            "campaigns:cancel",
            "End a campaign and its running trials; keep its results.",
        ),
        "extend": CommandPlace(
            "campaigns:extend",
            "Raise a campaign's budget; a finished campaign continues.",
        ),
        "rm": CommandPlace(
            "campaigns:rm",
            "Delete a campaign with its trials. An active campaign must be cancelled first.",
        ),
        "calibrations": GroupPlace(
            "calibrations:HELP",
            "Fit the cost model to trials of a machine, and manage the calibrations.",
            commands={
                "list": CommandPlace("calibrations:list_", "List the service's calibrations."),
                "show": CommandPlace(
                    "calibrations:show",
                    "Show a calibration's trials, and each constant before and after fitting.",
                ),
                "fit": CommandPlace(
                    "calibrations:fit",
                    "Fit the cost model to the trials of campaigns, and store it under a name.",
                ),
                "export": CommandPlace(
                    "calibrations:export",
                    "Print a calibration as one JSON document, for another service or for "
                    "`predict`.",
                ),
                "import": CommandPlace(
                    "calibrations:import_",
                    "Import an exported calibration under a name.",
                ),
                "delete": CommandPlace(
                    "calibrations:delete",
                    "Delete a calibration; its trials stay.",
                ),
            },
        ),
    },
    "Without a service": {
        "predict": CommandPlace(
            "predictions:predict",
            "Predict one strategy: whether it is legal and fits, its time, memory and energy.",
        ),
        "sweep": CommandPlace(
            "predictions:sweep",
            "Rank all strategies of a space by their predicted speed, without a trial.",
        ),
        "space": CommandPlace(
            "predictions:space",
            "Count the legal strategies of a space, and how many each rule removes.",
        ),
        "scaling": CommandPlace(
            "scaling:scaling",
            "Predict strong and weak scaling of one layout over nodes; with --run, measure it.",
        ),
        "models": CommandPlace(
            "catalog:models",
            "List the built-in models, or print the memory and FLOPs of one.",
        ),
        "machines": CommandPlace(
            "catalog:machines",
            "List the built-in machines; commands also take a TOML file.",
        ),
        "profiles": CommandPlace(
            "catalog:profiles",
            "List the cluster profiles, or print one as a start for your own.",
        ),
        "adapter": GroupPlace(
            "adapters:HELP",
            "Describe any trainer with a small file: list, show, write and check adapters.",
            {
                "list": CommandPlace("adapters:list_", "List the built-in adapters and yours."),
                "show": CommandPlace("adapters:show", "Print an adapter's file."),
                "new": CommandPlace(
                    "adapters:new", "Write a commented copy of an adapter, to be edited."
                ),
                "check": CommandPlace(
                    "adapters:check",
                    "Start a trainer a few times with an adapter, and check the results.",
                ),
            },
        ),
        "doctor": CommandPlace(
            "doctor:doctor",
            "Check this machine: Python, data folder, database, trial packages, GPUs, port, Slurm.",
        ),
    },
    "A service that a group shares": {
        "login": CommandPlace(
            "users:login",
            "Store the token of a service, so that every command finds it.",
        ),
        "logout": CommandPlace(
            "users:logout",
            "Delete the stored token of a service; the token stays valid until an admin renews it.",
        ),
        "whoami": CommandPlace("users:whoami", "Show your user name and scope at the service."),
        "audit": CommandPlace(
            "users:audit",
            "List changes with their user and response status, newest first.",
        ),
        "users": GroupPlace(
            "users:HELP",
            "Manage the users of a shared service: list, add, change, renew, revoke.",
            commands={
                "list": CommandPlace(
                    "users:list_",
                    "List the users, with their limits and usage.",
                ),
                "add": CommandPlace("users:add", "Add a user, and print the token once."),
                "change": CommandPlace(
                    "users:change",
                    "Change a user's scope, limits or address; `none` removes a limit or the "
                    "address.",
                ),
                "renew": CommandPlace(
                    "users:renew",
                    "Replace a user's token, and print the new one once.",
                ),
                "revoke": CommandPlace(
                    "users:revoke",
                    "Revoke a user's access, including browser sessions; the user's campaigns "
                    "continue.",
                ),
            },
        ),
    },
    "What is kept": {
        "backup": CommandPlace(
            "storage:backup",
            "Write the database into one file, while the service runs.",
        ),
        "restore": CommandPlace(
            "storage:restore",
            "Replace a database by a backup, completely or not at all; the service must be "
            "stopped.",
        ),
        "prune": CommandPlace(
            "storage:prune",
            "Delete campaigns that ended long ago, with their trials' logs and files.",
        ),
    },
}
"""The commands by panel of --help; each is imported when it runs."""


class AllCommands(Commands):
    """The command `autotune` with all of its subcommands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            name: LateCommand(place, name=name, panel=panel)
            for panel, places in COMMANDS.items()
            for name, place in places.items()
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
