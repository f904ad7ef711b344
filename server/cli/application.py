"""All commands, gathered."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from server.cli.failures import EXIT_CODES, Commands
from server.cli.late_command import CommandPlace, GroupPlace, LateCommand
from server.cli.output import text

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
            "See it work: start a service, tune three models, print what it recommends.",
        ),
        "serve": CommandPlace(
            "serve:serve",
            "Serve the REST API and the pages, and work on campaigns, until Ctrl-C.",
        ),
        "runner": CommandPlace(
            "serve:runner",
            "Work on campaigns without serving, beside a service that has the same database.",
        ),
    },
    "Campaigns": {
        "submit": CommandPlace(
            "submit:submit",
            "Submit a campaign: how should this model be laid out on these nodes?",
        ),
        "watch": CommandPlace(
            "watching:watch",
            "Follow a campaign until it is at rest, then print what it recommends.",
        ),
        "top": CommandPlace(
            "top:top",
            "Show what runs where and who waits for what: runners, campaigns, trials. Ctrl-C ends "
            "it.",
        ),
        "ls": CommandPlace(
            "campaigns:ls",
            "List campaigns, newest first, with what each has found.",
        ),
        "show": CommandPlace(
            "campaigns:show",
            "Show a campaign and its trials, or one trial, and why each was chosen.",
        ),
        "open": CommandPlace(
            "campaigns:open_",
            "Open a campaign's page in a browser, and print the address that lets one browser "
            "in, once.",
        ),
        "best": CommandPlace(
            "recommendations:best",
            "Print what a campaign recommends, and write the files that run it.",
        ),
        "repeat": CommandPlace(
            "submit:repeat",
            "Submit a campaign's question again with another search, to compare both.",
        ),
        "compare": CommandPlace(
            "comparisons:compare",
            "Hold campaigns against each other: what was asked differently, and which found the "
            "best.",
        ),
        "plot": CommandPlace(
            "figures:plot",
            "Show why a campaign's best won and what was learned: as a table, a picture or data.",
        ),
        "pause": CommandPlace(
            "campaigns:pause",
            "Start no further trials until `autotune resume`; those that run end by themselves.",
        ),
        "resume": CommandPlace("campaigns:resume", "Go on with a paused campaign."),
        "cancel": CommandPlace(
            "campaigns:cancel",
            "End a campaign and its running trials; what was measured is kept.",
        ),
        "extend": CommandPlace(
            "campaigns:extend",
            "Raise a campaign's budget; one that is done goes on.",
        ),
        "rm": CommandPlace(
            "campaigns:rm",
            "Delete a campaign with its trials. One that is worked on must be cancelled first.",
        ),
        "calibrations": GroupPlace(
            "calibrations:HELP",
            "Fit the cost model to trials of a machine, and keep what came of it.",
            commands={
                "list": CommandPlace("calibrations:list_", "List the calibrations of the service."),
                "show": CommandPlace(
                    "calibrations:show",
                    "Show what a calibration rests on, and each constant before and after.",
                ),
                "fit": CommandPlace(
                    "calibrations:fit",
                    "Fit the cost model to the trials of campaigns, and keep it under a name.",
                ),
                "export": CommandPlace(
                    "calibrations:export",
                    "Print a calibration as one JSON document, for another service or for "
                    "`predict`.",
                ),
                "import": CommandPlace(
                    "calibrations:import_",
                    "Keep an exported calibration under a name.",
                ),
                "delete": CommandPlace(
                    "calibrations:delete",
                    "Delete a calibration; the trials it was fitted to stay.",
                ),
            },
        ),
    },
    "Without a service": {
        "predict": CommandPlace(
            "predictions:predict",
            "Predict one strategy: is it legal, does it fit, how fast is it?",
        ),
        "sweep": CommandPlace(
            "predictions:sweep",
            "Rank all strategies of a space by their predicted speed, without a trial.",
        ),
        "space": CommandPlace(
            "predictions:space",
            "Count the strategies that may be tried, and say which rule removes how many.",
        ),
        "scaling": CommandPlace(
            "scaling:scaling",
            "Tell how one layout scales over nodes, strongly and weakly; with --run, measure it.",
        ),
        "models": CommandPlace(
            "catalog:models",
            "List the models that have a name, or print the memory and FLOPs that one takes.",
        ),
        "machines": CommandPlace(
            "catalog:machines",
            "List the machines that have a name; a TOML file works as well.",
        ),
        "profiles": CommandPlace(
            "catalog:profiles",
            "List the profiles of clusters, or print one to start a file of your own from.",
        ),
        "adapter": GroupPlace(
            "adapters:HELP",
            "Any trainer by a small file: list, show and write adapters, and try one.",
            {
                "list": CommandPlace("adapters:list_", "List the adapters that have a name."),
                "show": CommandPlace("adapters:show", "Print an adapter's file."),
                "new": CommandPlace(
                    "adapters:new", "Write a commented adapter to change, as a copy of another."
                ),
                "check": CommandPlace(
                    "adapters:check",
                    "Start a trainer a few times by an adapter, and judge what comes of it.",
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
            "Keep the token that an admin gave you for a service, so that every command finds it.",
        ),
        "logout": CommandPlace(
            "users:logout",
            "Delete the kept token of a service; the token itself works until an admin renews it.",
        ),
        "whoami": CommandPlace(
            "users:whoami", "Say as whom the service knows you, and what you may do."
        ),
        "audit": CommandPlace(
            "users:audit",
            "List who asked for which change, and how it was answered, the newest first.",
        ),
        "users": GroupPlace(
            "users:HELP",
            "Say who may use a service that a group shares, and what: list, add, change, renew, "
            "revoke.",
            commands={
                "list": CommandPlace(
                    "users:list_",
                    "List the users, with their limits and what they have taken of them.",
                ),
                "add": CommandPlace("users:add", "Add a user, and print the token, once."),
                "change": CommandPlace(
                    "users:change",
                    "Give a user another scope, other limits or another address; what is left out "
                    "stays, `none` is no limit, or no address.",
                ),
                "renew": CommandPlace(
                    "users:renew",
                    "Give a user a new token, and print it, once; the old one is worth nothing "
                    "then.",
                ),
                "revoke": CommandPlace(
                    "users:revoke",
                    "Let a user in no more, sessions of browsers among it; the user's campaigns "
                    "go on.",
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
            "Put a backup in the place of a database, whole or not at all; its service must not "
            "run.",
        ),
        "prune": CommandPlace(
            "storage:prune",
            "Delete campaigns that ended long ago, with their trials' logs and files.",
        ),
    },
}
"""The commands by the panel of --help that they stand in: each is imported when it is run."""


class AllCommands(Commands):
    """The command `autotune` with all of its commands."""

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
    """Stand before every command."""


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
