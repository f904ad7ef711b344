"""Real trials on one GPU, from small ones to some that run out of memory, and how well the cost
model predicts them.

    python -m tests.benchmarks.one_gpu measure --output trials.csv [--quick] [--most N] [--plan]
    python -m tests.benchmarks.one_gpu evaluate trials.csv [--json OUT] [--draws N]

`measure` needs a GPU that nvidia-smi lists, or trains tiny models on the CPU. A run that was cut
goes on where it stopped when the same command is given again. `docs/measurement.md` has the
results.
Exit codes: 0 done, 1 trials crash whatever is tried, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from search_spaces.errors import InvalidInput
from tests.benchmarks.accuracy.command import at_least_1, check_writable
from tests.benchmarks.accuracy.tables import TableError
from tests.benchmarks.one_gpu.evaluation import DRAWS, document, report
from tests.benchmarks.one_gpu.measuring import Broken, machine_here, measure, title
from tests.benchmarks.one_gpu.plan import plan
from tests.benchmarks.one_gpu.table import read_table

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = made.add_subparsers(dest="command", required=True)
    to_measure = commands.add_parser("measure", help="run trials here")
    to_measure.add_argument("--output", type=Path, required=True, metavar="FILE.csv")
    to_measure.add_argument("--quick", action="store_true", help="10 trials of small models")
    to_measure.add_argument("--most", type=at_least_1, metavar="N", help="the first N of the plan")
    to_measure.add_argument("--plan", action="store_true", help="show the trials and run none")
    to_evaluate = commands.add_parser("evaluate", help="compare predictions with measurements")
    to_evaluate.add_argument("file", type=Path, metavar="FILE.csv", help="that `measure` wrote")
    to_evaluate.add_argument("--draws", type=at_least_1, default=DRAWS, help="of five trials")
    to_evaluate.add_argument("--json", type=Path, metavar="OUT", help="write all figures there")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    try:
        measured(given) if given.command == "measure" else evaluated(given)
    except (InvalidInput, TableError, Broken) as error:
        print(f"one_gpu {given.command}: {error}", file=sys.stderr)
        return FAILED if isinstance(error, Broken) else BAD_INPUT
    except KeyboardInterrupt:
        print("\ninterrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    return 0


def measured(given: argparse.Namespace) -> None:
    machine, gpus = machine_here()
    trials = plan(machine, quick=given.quick)[: given.most]
    if given.plan:
        for trial in trials:
            print(f"{title(trial)}: {trial.fill:.0%} of memory, {trial.predicted_time_s:.2g} s")
        print("all figures are predicted")
        return
    say = partial(print, end="", file=sys.stderr, flush=True)
    measure(trials, given.output, machine, gpus=gpus, say=say)
    print(f"{given.output} is complete; next: one_gpu evaluate {given.output}")


def evaluated(given: argparse.Namespace) -> None:
    check_writable(given.json)
    table = read_table(given.file)
    figures = document(table, draws=given.draws)
    print("\n".join(report(table, figures)))
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
