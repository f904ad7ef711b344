"""Real trials on one GPU, from small ones to some that run out of memory, and how well the cost
model foresees them.

    python -m tests.benchmarks.one_gpu measure --output trials.csv [--quick]
    python -m tests.benchmarks.one_gpu evaluate trials.csv [--json OUT]

`measure` needs a GPU that nvidia-smi lists, or trains tiny models on the CPU. `docs/gpu.md` says
what is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from search_spaces.errors import InvalidInput
from tests.benchmarks.accuracy.tables import TableError
from tests.benchmarks.one_gpu.evaluation import DRAWS, document, evaluate, report
from tests.benchmarks.one_gpu.measuring import Broken, bench_here, measure, title
from tests.benchmarks.one_gpu.plan import plan
from tests.benchmarks.one_gpu.table import read_table

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
QUIET_S = 2.0

MEASURE = """\
Train each planned trial with the bundled trainer, as `autotune` trains its own on the machine
`local`, and add its row to a CSV as soon as it is known. The GPU's memory decides which they are:
models, micro-batch sizes, gradient accumulation, activation checkpointing, ZeRO stages, attention
kernels and precisions, up to and over what the GPU holds. A run that was cut goes on where it
stopped when the same command is given again.
"""
EVALUATE = """\
Predict every trial of a CSV that `measure` wrote: with general knowledge of the GPU alone, and
calibrated on five random ones of the trials, twenty times over (`--draws`). Prints the errors of
time, peak memory and energy, how many measurements lie within the 80 % intervals, and how
out-of-memory was foreseen.
"""
EXAMPLES = """\
examples:
  python -m tests.benchmarks.one_gpu measure --output h100.csv            40 trials, half an hour
  python -m tests.benchmarks.one_gpu measure --output h100.csv --quick    10 small ones
  python -m tests.benchmarks.one_gpu measure --output h100.csv --plan     show them, run none
  python -m tests.benchmarks.one_gpu evaluate h100.csv --json h100.json
  CUDA_VISIBLE_DEVICES= python -m tests.benchmarks.one_gpu measure --output cpu.csv

exit codes: 0 done, 1 trials crash whatever is tried, 2 bad input, 130 interrupted
"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n\n")[0],
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = made.add_subparsers(dest="command", metavar="{measure,evaluate}")
    to_measure = commands.add_parser("measure", help="run trials here", description=MEASURE)
    to_measure.add_argument(
        "--output", type=Path, required=True, metavar="FILE.csv", help="rows are added to it"
    )
    to_measure.add_argument("--quick", action="store_true", help="a few trials of small models")
    to_measure.add_argument(
        "--most", type=int, metavar="N", help="only the first N trials of the plan"
    )
    to_measure.add_argument("--plan", action="store_true", help="show the trials and run none")
    to_evaluate = commands.add_parser(
        "evaluate", help="compare predictions with what was measured", description=EVALUATE
    )
    to_evaluate.add_argument("file", type=Path, metavar="FILE.csv", help="that `measure` wrote")
    to_evaluate.add_argument(
        "--draws",
        type=int,
        default=DRAWS,
        metavar="N",
        help="of five trials (default: %(default)s)",
    )
    to_evaluate.add_argument("--json", type=Path, metavar="OUT", help="write all figures there")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    given = made.parse_args(arguments)
    if given.command is None:
        made.print_help()
        return 0
    try:
        return measured(given) if given.command == "measure" else evaluated(given)
    except (InvalidInput, TableError) as error:
        print(f"one_gpu {given.command}: {error}", file=sys.stderr)
        return BAD_INPUT
    except Broken as error:
        print(f"one_gpu {given.command}: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("\ninterrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED


def measured(given: argparse.Namespace) -> int:
    if given.most is not None and given.most < 1:
        raise InvalidInput("--most", given.most, "is no number of trials", valid="1 or more")
    bench = bench_here()
    trials = plan(bench.machine, quick=given.quick)[: given.most]
    if given.plan:
        for trial in trials:
            print(f"{title(trial)}: {trial.fill:.0%} of memory, {trial.predicted_time_s:.2g} s")
        print("all figures are predicted")
        return 0
    say(f"{bench.machine.description}; {len(trials)} trials into {given.output}\n")
    try:
        measure(trials, given.output, bench, say=say)
    finally:
        bench.backend.close()
    print(f"{given.output} is complete; next: one_gpu evaluate {given.output}")
    return 0


def evaluated(given: argparse.Namespace) -> int:
    if given.draws < 1:
        raise InvalidInput("--draws", given.draws, "is no number of draws", valid="1 or more")
    table = read_table(given.file)
    methods = evaluate(table, draws=given.draws, say=after(QUIET_S))
    print(report(table, methods))
    if given.json:
        try:
            given.json.write_text(json.dumps(document(table, methods), indent=2) + "\n")
        except OSError as error:
            reason = f"cannot be written: {error.strerror}"
            raise InvalidInput("--json", str(given.json), reason) from None
    return 0


def say(text: str) -> None:
    """Progress, apart from the results."""
    print(text, end="", file=sys.stderr, flush=True)


def after(quiet_s: float) -> Callable[[str], None]:
    """Says nothing of what is done sooner."""
    start = time.monotonic()
    return lambda text: say(text) if time.monotonic() - start > quiet_s else None


if __name__ == "__main__":
    sys.exit(main())
