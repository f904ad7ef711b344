"""All commands, gathered."""

from __future__ import annotations

from collections.abc import Callable

import typer
from typer.core import TyperCommand

from server.cli import (
    best,
    calibrations,
    campaigns,
    catalog,
    demo,
    doctor,
    predict,
    profiles,
    serve,
    show,
    space,
    submit,
)
from server.cli import watch as watching
from server.cli.examples import epilog
from server.cli.failures import EXIT_CODES, Commands
from server.cli.grouped import expanded
from server.cli.strategies import StrategyCommand

HELP = f"""Find the parallel layout with which a language model trains fastest, by short real runs.

Start with `autotune demo`. Or run `autotune serve` in one terminal, and in another:

  autotune submit --model tiny --machine local --space tiny-local --max-trials 10 --watch\n
  autotune best 1 --out run/

On a cluster with Slurm, `autotune doctor --profile NAME` says what is missing, and
`autotune submit --profile NAME ...` runs trials as jobs.

Without a service, `autotune predict` and `autotune space` answer from the cost model;
`autotune calibrations` fits it to a machine by the trials that a service has run.

{EXIT_CODES}
"""


def _group(text: str) -> typer.Typer:
    return typer.Typer(
        cls=Commands,
        help=text,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


app = _group(HELP)

COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Start": {"demo": demo.demo, "serve": serve.serve, "runner": serve.runner},
    "Campaigns": {
        "submit": submit.submit,
        "watch": watching.watch,
        "ls": campaigns.ls,
        "show": show.show,
        "best": best.best,
        "pause": campaigns.pause,
        "resume": campaigns.resume,
        "cancel": campaigns.cancel,
        "extend": campaigns.extend,
        "rm": campaigns.rm,
    },
    "Without a service": {
        "predict": predict.predict,
        "space": space.space,
        "models": catalog.models,
        "machines": catalog.machines,
        "profiles": profiles.profiles,
        "doctor": doctor.doctor,
    },
}

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

CLASSES: dict[str, type[TyperCommand]] = {"predict": StrategyCommand}

for panel, commands in COMMANDS.items():
    for name, command in commands.items():
        app.command(name, cls=CLASSES.get(name), rich_help_panel=panel, epilog=epilog(name))(
            expanded(command)
        )

calibrating = _group(calibrations.HELP)
for name, command in GROUPS[CALIBRATIONS].items():
    calibrating.command(name, epilog=epilog(f"{CALIBRATIONS} {name}"))(expanded(command))
app.add_typer(
    calibrating, name=CALIBRATIONS, rich_help_panel="Campaigns", epilog=epilog(CALIBRATIONS)
)


def main() -> None:
    """The entry point."""
    app(prog_name="autotune")
