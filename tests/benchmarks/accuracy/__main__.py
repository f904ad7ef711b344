"""The cost model and its calibration against tables of published measurements.

    python -m tests.benchmarks.accuracy --throughput FILE --memory FILE
        [--draws N] [--json OUT]

FILE is a CSV file with a row for each measured configuration; `tables.py` has the columns.
Every cluster and framework with enough rows is a stack that is calibrated on its own: on a few of
its rows, drawn at random, and judged on the rest. What no row tells is null in OUT, whose errors
are fractions. All on one core.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from threadpoolctl import threadpool_limits

from tests.benchmarks.accuracy.command import at_least_1, bars, check_writable, console, started
from tests.benchmarks.accuracy.judgement import Judgement, document, judge
from tests.benchmarks.accuracy.report import show
from tests.benchmarks.accuracy.speed import speed
from tests.benchmarks.accuracy.tables import MEMORY, THROUGHPUT, TableError, read

CONVENTIONS = """\
An empty cell is not known, and read as what a launcher does without being told: 1 of every degree,
off for every switch; batches from one another; of a model's shape what other rows say of it, else
what its family has. Memory without a ZeRO stage: 1 for DeepSpeed, 0 for others. BigScience's "ZeRO
(old branch)" divides everything (stage 3), whatever is stated, and so do InternEvo's replicas where
memory is asked. Before any trial Megatron-LM and NeMo are taken to be tuned by their vendor,
Megatron-DeepSpeed as is usual, others hardly. Words of torchtitan: a local batch is that of a step
under a pipeline, "selective" is by operation. Rows of one node that are exactly linear in the
accumulation were computed from one another and count once.
"""
"""How tables are read, for --help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 2 for a table that cannot be used, said in one line."""
    chosen = _parser().parse_args(arguments)
    try:
        check_writable(chosen.json)
        judgement = _judged(chosen.throughput, chosen.memory, draws=chosen.draws)
    except TableError as error:
        print(f"accuracy: {error}", file=sys.stderr)
        return 2
    show(judgement, console(sys.stdout))
    if chosen.json:
        text = json.dumps(document(judgement), indent=1, allow_nan=False)
        chosen.json.write_text(text + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=f"{CONVENTIONS}\nColumns of --throughput: {', '.join(THROUGHPUT)}.\n"
        f"\nColumns of --memory: {', '.join(MEMORY)}.",
    )
    parser.add_argument("--throughput", type=Path, required=True, help="iteration times, CSV")
    parser.add_argument("--memory", type=Path, required=True, help="peaks and labels, CSV")
    parser.add_argument("--draws", type=at_least_1, default=20, help="random choices of trials")
    parser.add_argument("--json", type=Path, help="write all figures there")
    return parser


def _judged(throughput: Path, memory: Path, *, draws: int) -> Judgement:
    timed, remembered = read(throughput, THROUGHPUT), read(memory, MEMORY)
    with threadpool_limits(limits=1), bars() as progress:
        timing = started(progress, "speed", 1)
        measured = speed()
        timing()
        return judge(
            timed, remembered, draws=draws, speed=measured, started=partial(started, progress)
        )


if __name__ == "__main__":
    sys.exit(main())
