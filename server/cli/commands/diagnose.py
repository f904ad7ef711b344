"""Why a run is slow: the answer to its log."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from shutil import copyfileobj
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search_spaces.errors import InvalidInput
from server.cli.failures import ExitCode
from server.cli.options import ModelOptions, RunMachineOptions
from server.cli.output import Json, document, note, out, text

if TYPE_CHECKING:
    from autotune.diagnosis.run_log import RunLog
    from autotune.schemas.diagnoses import Diagnosis

STDIN = Path("-")
LOOK_EVERY_S = 5.0
RECENT = 10
"""Newest reports that are compared with the run's median."""
FALLS = 1.05


def diagnose(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG",
            help="The log of a run, JSON lines or CSV, or a folder of TensorBoard; - reads the log "
            "from standard input.",
        ),
    ],
    model: ModelOptions,
    machine: RunMachineOptions,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...", help="The run's launch script or configuration, if it helps."
        ),
    ] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, help="Nodes of the run.")] = None,
    baseline: Annotated[
        str,
        typer.Option(
            "--baseline",
            help='Its layout: "tp=8,pp=4,mbs=1,zero=1,gbs=512", or its line of arguments.',
        ),
    ] = "",
    adapter: Annotated[
        str, typer.Option("--adapter", help="Its trainer, a name of `autotune adapter list`.")
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", help="Repeat the answer as the log grows, until Ctrl-C.")
    ] = False,
    json: Json = False,
) -> None:
    """Explain from its log why a training run is slow, and what to expect instead.

    Reads the layout, batch, model and machine from the log; options supply what is missing. Prints
    the measured time, the expected time of this layout on this machine, the causes of the gap, and
    the layouts with the largest predicted gain.

    Reads logs of Megatron-LM, Megatron-DeepSpeed, Megatron-Bridge, NeMo, MLPerf, torchtitan,
    nanotron, GPT-NeoX, OLMo, Hugging Face, LLaMA-Factory and others.

    Needs no service. Exit code 1 if the run is slow.
    """
    from evaluators.run_log import read_run
    from server.cli.tables import diagnoses as table
    from server.diagnosis import diagnosis_of
    from server.settings import Settings

    options: dict[str, Any] = {
        "model": model.choice() if model.model else None,
        "machine": machine.choice() if machine.machine else None,
        "nodes": nodes,
        "baseline": baseline,
        "adapter": adapter,
        "adapters_dir": Settings().adapters_dir,
    }

    def answer(run: RunLog) -> Diagnosis:
        return diagnosis_of(run, **options)

    if follow:
        if log.is_dir() or log == STDIN:
            reason = "only a file can be followed"
            raise InvalidInput("log", str(log), reason, valid="a file")
        _follow(log, files or [], answer)
    if log == STDIN:
        with NamedTemporaryFile() as copy:
            copyfileobj(sys.stdin.buffer, copy)
            copy.flush()
            run = read_run(Path(copy.name), files or [], name="standard input")
    else:
        run = read_run(log, files or [])
    result = answer(run)
    if json:
        document(result)
    else:
        out().print(table.diagnosis(result))
    if result.verdict == "slow":
        raise typer.Exit(ExitCode.FAILED)


def _follow(log: Path, files: list[Path], answer: Any) -> None:
    from statistics import median

    from autotune.words.quantities import percent, seconds
    from evaluators.run_log import read_run
    from server.cli.tables import diagnoses as table

    size, shown, slower = -1, 0, False
    note(f"following {log}; Ctrl-C ends it")
    while True:
        if log.stat().st_size == size:
            time.sleep(LOOK_EVERY_S)
            continue
        size = log.stat().st_size
        run = read_run(log, files)
        result = answer(run)
        if not shown:
            out().print(table.diagnosis(result))
        elif len(run.steps) > shown:
            now = median(step.time_s for step in run.steps[-RECENT:])
            usual = result.run.iteration_time_s
            text(f"iteration {run.steps[-1].number}: {seconds(now)} ({result.verdict})")
            if now > FALLS * usual and not slower:
                text(f"the rate falls: {percent(now / usual - 1.0)} above the median of the run")
            slower = now > FALLS * usual
        shown = len(run.steps)
