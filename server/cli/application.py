"""All commands, gathered."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated

import typer

from server.cli.commands import (
    calibrations,
    campaigns,
    catalog,
    comparisons,
    doctor,
    figures,
    predictions,
    recommendations,
    scaling,
    serve,
    storage,
    submit,
    watching,
)
from server.cli.examples import EXAMPLES
from server.cli.failures import EXIT_CODES, Command, Commands
from server.cli.options import flattened
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

COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Start": {"demo": serve.demo, "serve": serve.serve, "runner": serve.runner},
    "Campaigns": {
        "submit": submit.submit,
        "watch": watching.watch,
        "ls": campaigns.ls,
        "show": campaigns.show,
        "open": campaigns.open_,
        "best": recommendations.best,
        "compare": comparisons.compare,
        "plot": figures.plot,
        "pause": campaigns.pause,
        "resume": campaigns.resume,
        "cancel": campaigns.cancel,
        "extend": campaigns.extend,
        "rm": campaigns.rm,
    },
    "Without a service": {
        "predict": predictions.predict,
        "sweep": predictions.sweep,
        "space": predictions.space,
        "scaling": scaling.scaling,
        "models": catalog.models,
        "machines": catalog.machines,
        "profiles": catalog.profiles,
        "doctor": doctor.doctor,
    },
    "What is kept": {
        "backup": storage.backup,
        "restore": storage.restore,
        "prune": storage.prune,
    },
}
"""The commands by the panel of --help that they stand in."""

CALIBRATIONS = "calibrations"
GROUPS: dict[str, dict[str, Callable[..., None]]] = {
    CALIBRATIONS: {
        "list": calibrations.list_,
        "show": calibrations.show,
        "fit": calibrations.fit,
        "export": calibrations.export,
        "import": calibrations.import_,
        "delete": calibrations.delete,
    },
}
"""Commands of two words."""


def _group(text: str) -> typer.Typer:
    return typer.Typer(
        cls=Commands,
        help=text,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _examples(command: str) -> str | None:
    """Return the end of a command's help: each example on a line of its own."""
    lines = EXAMPLES.get(command)
    return None if lines is None else "\n\n".join(["Examples:", *(f"  {line}" for line in lines)])


def _version(wanted: bool) -> None:
    if wanted:
        text(f"autotune {version('autotune')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Stand before every command."""


app = _group(HELP)
app.callback(cls=Commands, help=HELP, no_args_is_help=True)(_root)
for panel, commands in COMMANDS.items():
    for name, command in commands.items():
        app.command(name, cls=Command, rich_help_panel=panel, epilog=_examples(name))(
            flattened(command)
        )

calibrations_app = _group(calibrations.HELP)
for name, command in GROUPS[CALIBRATIONS].items():
    calibrations_app.command(name, cls=Command, epilog=_examples(f"{CALIBRATIONS} {name}"))(
        flattened(command)
    )
app.add_typer(
    calibrations_app,
    name=CALIBRATIONS,
    rich_help_panel="Campaigns",
    epilog=_examples(CALIBRATIONS),
)


def main() -> None:
    """Run the command that was typed."""
    app(prog_name="autotune")
