"""One trial on its own: `python -m evaluators.trainer --request trial.json`.

Started once, it starts the ranks itself. Started as one of many ranks (RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT are set, as torchrun does), it is that rank.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from autotune.measurement.metrics import metrics
from evaluators.trainer.launcher import be_launched, launched
from evaluators.trainer.libraries import device_of_trials, environment, load
from evaluators.trainer.supervisor import owned, supervise
from evaluators.trial import LOG, TrialOutcome, TrialRequest, request_from_dict

FAILED, BAD_REQUEST = 1, 2


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    commands = argparse.ArgumentParser(
        prog="python -m evaluators.trainer",
        description="Train a model in one parallel layout for a few iterations and measure it.",
        epilog="Writes trial.log and result.json into the trial's directory. Exit code 0 when it "
        "trained, 1 when it did not (the reason is printed and in result.json), 2 on a request "
        "that cannot be read.",
    )
    commands.add_argument(
        "--request",
        type=Path,
        required=True,
        metavar="FILE",
        help="JSON: token, transformer, machine, strategy, protocol, directory, seed",
    )
    commands.add_argument(
        "--directory",
        type=Path,
        help="where to write (default: the request's; without one, where the request lies)",
    )
    commands.add_argument(
        "--iterations",
        type=int,
        metavar="N",
        help="iterations to measure at each number of micro-batches (default: the request's)",
    )
    commands.add_argument(
        "--accumulations",
        type=int,
        nargs="+",
        metavar="GAS",
        help="gradient accumulation steps to measure at (default: the request's)",
    )
    return commands


def read_request(arguments: argparse.Namespace) -> TrialRequest:
    """Return the request with the changes that the options make.

    Raises:
        OSError, ValueError, KeyError, TypeError: the file is not a request.
    """
    file: Path = arguments.request
    data = {"directory": str(file.resolve().parent)} | json.loads(file.read_text("utf-8"))
    request = request_from_dict(data)
    protocol = replace(
        request.protocol,
        measured_iterations=arguments.iterations or request.protocol.measured_iterations,
        accumulations=tuple(arguments.accumulations or request.protocol.accumulations),
    )
    directory = arguments.directory or request.directory
    return replace(request, protocol=protocol, directory=directory)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (None: the process's own); return its exit code."""
    arguments = parser().parse_args(words)
    try:
        request = read_request(arguments)
        request.directory.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"{arguments.request}: no trial request: {error!r}", file=sys.stderr)
        return BAD_REQUEST
    alone = launched(os.environ) is None
    extensions = request.directory / "torch_extensions"
    os.environ |= environment(device_of_trials(), extensions=extensions, one_host=alone)
    return run_alone(request) if alone else be_launched(request, os.environ)


def run_alone(request: TrialRequest) -> int:
    """Start the ranks, print their log and a summary; return the exit code."""
    with owned(request.directory) as mine:
        if not mine:
            print(f"{request.directory}: this trial is already running", file=sys.stderr)
            return FAILED
        if device_of_trials() == "cpu":
            load()
        try:
            outcome = supervise(request, _follow(request.directory / LOG))
        except OSError as error:
            print(f"cannot write the result into {request.directory}: {error}", file=sys.stderr)
            return FAILED
    print(summary(request, outcome))
    return 0 if outcome.error is None else FAILED


def _follow(log: Path) -> Callable[[], None]:
    shown = log.stat().st_size if log.exists() else 0

    def show() -> None:
        nonlocal shown
        if log.exists():
            with log.open("rb") as file:
                file.seek(shown)
                added = file.read()
            shown += len(added)
            sys.stdout.write(added.decode("utf-8", "replace"))
            sys.stdout.flush()

    return show


def summary(request: TrialRequest, outcome: TrialOutcome) -> str:
    """Return the outcome in a few lines for people."""
    if outcome.error:
        return f"{outcome.status.value}: {outcome.error}\nlog: {outcome.log_path}"
    lines = [f"{request.strategy.short()}, on {outcome.host}:"]
    for measured in outcome.measurements:
        strategy = request.strategy.with_accumulation(measured.gradient_accumulation_steps)
        figures = metrics(request.transformer, request.machine, strategy, [measured])
        lines.append(
            f"  GAS {measured.gradient_accumulation_steps}: {figures.iteration_time_s:.4f} s an "
            f"iteration (spread {figures.iteration_time_spread_s:.4f} s), "
            f"{figures.tokens_per_s:.0f} tokens/s"
        )
    lines.append(f"  fullest rank: {max(outcome.peak_memory_gib):.3f} GiB")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
