"""The cost model and its calibration against tables of published measurements.

    python -m tests.benchmarks.accuracy --throughput FILE... --memory FILE...
        [--memory-reference FILE...] [--draws N] [--json OUT] [--rows OUT.csv]

FILE is a CSV file with a row for each measured configuration; `tables.py` has the columns. Tables
of models of 2025 and 2026 (those with a column `config_id`) are judged apart.
Every cluster and framework with enough rows is a stack that is calibrated on its own: on a few of
its rows, drawn at random, and judged on the rest. What no row tells is null in OUT, whose errors
are fractions. All on one core.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from tests.benchmarks.accuracy.command import at_least_1, bars, check_writable, console
from tests.benchmarks.accuracy.judgement import judge
from tests.benchmarks.accuracy.report import show
from tests.benchmarks.accuracy.rows import Tables, write
from tests.benchmarks.accuracy.speed import speed
from tests.benchmarks.accuracy.tables import MEMORY, THROUGHPUT, TableError

CONVENTIONS = """\
An empty cell is not known, and read as what a launcher does without being told: 1 of every degree,
off for every switch; batches from one another; of a model's shape what other rows say of it, else
what its family has. Memory without a ZeRO stage: 1 for DeepSpeed, 0 for others. BigScience's "ZeRO
(old branch)" divides everything (stage 3), whatever is stated, and so do InternEvo's replicas where
memory is asked. Before any trial Megatron-LM and NeMo are taken to be tuned by their vendor,
Megatron-DeepSpeed as is usual, others hardly. A local batch of torchtitan is that of a step
under a pipeline. Rows of one node that are exactly linear in the
accumulation were computed from one another and count once.
"""
"""How tables are read, for --help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 2 for a table that cannot be used, said in one line."""
    chosen = _parser().parse_args(arguments)
    try:
        for out in (chosen.json, chosen.rows):
            check_writable(out)
        tables = Tables.read(chosen.throughput, chosen.memory, chosen.memory_reference)
    except TableError as error:
        print(f"accuracy: {error}", file=sys.stderr)
        return 2
    with threadpool_limits(limits=1), bars() as progress:
        figures = judge(tables, draws=chosen.draws, speed=speed(), progress=progress)
    show(figures, console(sys.stdout))
    if chosen.rows:
        write(chosen.rows, tables)
    if chosen.json:
        text = json.dumps(figures, indent=1, allow_nan=False)
        chosen.json.write_text(text + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=f"{CONVENTIONS}\nColumns of --throughput: {', '.join(THROUGHPUT)}.\n"
        f"\nColumns of --memory: {', '.join(MEMORY)}.",
    )
    files: dict[str, Any] = {"type": Path, "nargs": "+", "metavar": "FILE"}
    parser.add_argument("--throughput", help="iteration times, CSV", required=True, **files)
    parser.add_argument("--memory", help="peaks and labels, CSV", required=True, **files)
    parser.add_argument(
        "--memory-reference",
        help="golden peaks that constants are calibrated on before those of --memory are judged",
        default=[],
        **files,
    )
    parser.add_argument("--draws", type=at_least_1, default=20, help="random choices of trials")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--rows", type=Path, metavar="OUT.csv", help="write each row there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
