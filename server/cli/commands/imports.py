"""Earlier runs as observations, from which campaigns start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search_spaces.errors import InvalidInput, InvalidInputs
from server.cli.failures import ExitCode
from server.cli.options import ModelOptions, RunMachineOptions, ServiceOptions, name_or_file
from server.cli.output import Json, document, note, out

if TYPE_CHECKING:
    from autotune.diagnosis.observed import ObservedRun
    from autotune.diagnosis.run_log import RunLog
    from autotune.schemas.campaigns import Campaign
    from search_spaces.machine import Machine
    from search_spaces.transformer import Transformer

BUNDLED = "bundled"
SCRIPTS = frozenset({".sh", ".sbatch", ".yaml", ".yml", ".toml", ".json"})


def import_(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="Logs as `autotune diagnose` reads them, tables (CSV) with a row for each run, "
            "and launch scripts or configurations, which complete the logs of their folders.",
        ),
    ],
    model: ModelOptions,
    machine: RunMachineOptions,
    service: ServiceOptions,
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, help="Nodes of each run.")] = None,
    baseline: Annotated[
        str, typer.Option("--baseline", help='Their layout: "tp=8,pp=4,mbs=1,zero=1,gbs=512".')
    ] = "",
    adapter: Annotated[
        str,
        typer.Option(
            "--adapter",
            metavar="NAME|FILE",
            help="Their trainer: a name of `autotune adapter list`, a TOML file, or `bundled`. "
            "Default: by the log's form, or the table's column `adapter`.",
        ),
    ] = "",
    name: Annotated[str, typer.Option("--name", help="A name for people.")] = "",
    private: Annotated[
        bool, typer.Option("--private", help="Hide them from other users of a shared service.")
    ] = False,
    json: Json = False,
) -> None:
    """Import earlier runs, so that campaigns on their machine with their trainer start from them.

    Only each run's layout, time and memory are sent to the service. The runs of one model are
    stored as a campaign in the state `imported`, which `autotune rm` deletes. Importing the same
    runs again changes nothing.

    Runs that cannot be believed are refused with the reason. Exit code 1 if any was.
    """
    from autotune.diagnosis.observed import observed
    from autotune.diagnosis.subject import subject_of_run
    from autotune.schemas.imports import MOST_RUNS
    from autotune.schemas.resolution import machine_of, transformer_of
    from evaluators.run_log import read_runs

    transformer = transformer_of(model.choice()) if model.model else None
    stated = machine_of(machine.choice()) if machine.machine else None
    groups: dict[tuple[Transformer, Machine, str], list[ObservedRun]] = {}
    refused: list[dict[str, str]] = []
    scripts = [path for path in paths if path.suffix in SCRIPTS]
    logs = [path for path in paths if path not in scripts]
    if not logs:
        raise InvalidInput(
            "paths", str(paths[0]), "a script has no times", valid="a log or a table"
        )
    for path in logs:
        with _noted(path.name, refused):
            own_scripts = [each for each in scripts if each.parent == path.parent]
            for run in read_runs(path, own_scripts):
                with _noted(run.source, refused):
                    subject = subject_of_run(
                        run, transformer=transformer, machine=stated, nodes=nodes, layout=baseline
                    )
                    one, trainer = observed(run, subject), _trainer(run, adapter)
                    groups.setdefault((one.transformer, one.machine, trainer), []).append(one)
    with service.client() as client:
        stored = [
            client.import_runs(
                model=one_model,
                machine=one_machine,
                adapter="" if trainer == BUNDLED else name_or_file(trainer),
                runs=[each.run for each in runs[start : start + MOST_RUNS]],
                name=name,
                private=private,
            ).campaign
            for (one_model, one_machine, trainer), runs in groups.items()
            for start in range(0, len(runs), MOST_RUNS)
        ]
    _print(stored, refused, json=json)
    for each in refused:
        note(f"refused: {each['source']}: {each['reason']}")
    for assumed in {one.assumed for runs in groups.values() for one in runs if one.assumed}:
        note(f"assumed where nothing is stated: {', '.join(assumed)}")
    if refused:
        raise typer.Exit(ExitCode.FAILED)


def _print(stored: list[Campaign], refused: list[dict[str, str]], *, json: bool) -> None:
    from server.cli.tables import campaigns as table

    if json:
        document({"campaigns": stored, "refused": refused})
    elif stored:
        out().print(table.campaigns(stored))


@contextmanager
def _noted(source: str, refused: list[dict[str, str]]) -> Iterator[None]:
    try:
        yield
    except InvalidInput as error:
        refused.append({"source": source, "reason": error.reason})
    except InvalidInputs as errors:
        reason = "; ".join(f"{each.field}: {each.reason}" for each in errors.problems)
        refused.append({"source": source, "reason": reason})


def _trainer(run: RunLog, adapter: str) -> str:
    if found := adapter or run.adapter or ("bundled" in run.trainer and BUNDLED):
        return found
    reason = f"its trainer, {run.trainer}, has no adapter: state --adapter NAME or {BUNDLED}"
    raise InvalidInput("adapter", None, reason)
