"""How often the test of knobs adopts what does nothing, and finds what helps, on real noise.

    python tests/benchmarks/knob_replay.py --series FILE [--campaigns N] [--half test] [--json OUT]

FILE is a CSV file, or one compressed by gzip, with step times of runs that repeat a configuration:
columns `release`, `org`, `system`, `benchmark`, `run`, `sample`, `time_s`. A campaign draws its
starts, with replacement, from the runs of one system: the median of a run's ten steps from the
fifth on. Runs with equal steps count once. It tries 20 knobs, of which none or one makes steps
shorter, by 1, 2 or 3 %.

The peer is a fixed procedure: one start of the baseline and of each knob; three and three
alternating starts for each knob that is 0.5 % faster; adopted if all of its are faster than all of
the baseline's and their medians differ by 0.5 %. The baseline's first start is not counted.

The constants of `autotune/knobs/` were chosen on the systems at even places of the sorted list
(`--half choosing`); the figures are of the others.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from autotune.cost_model.columns import Array
from autotune.knobs.decision import next_starts, report
from autotune.knobs.question import KnobOption, KnobQuestion, KnobStart
from tests.benchmarks.accuracy.command import at_least_1, bars, check_writable, console, table
from tests.benchmarks.accuracy.tables import TableError

COLUMNS = ("release", "org", "system", "benchmark", "run", "sample", "time_s")
SYSTEM, FIRST_STEP, STEPS = 4, 4, 10
KNOBS = 20
GAINS = (0.0, 0.01, 0.02, 0.03)
THRESHOLD = 0.005
START_NODE_HOURS, TRAINING_NODE_HOURS = 10 / 60, 30 * 24.0
"""On one node: ten minutes, and thirty days."""

Campaign = Callable[[Array, Array, np.random.Generator], tuple[set[int], int]]
"""From log medians of a system's runs, and each knob's log gain: adopted knobs, and starts."""


@dataclass(frozen=True)
class Tally:
    """Of campaigns with one planted gain, or none."""

    adopted: float
    false: float
    starts: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 2 for a table that cannot be used, said in one line."""
    chosen = _parser().parse_args(arguments)
    try:
        check_writable(chosen.json)
        systems = read_systems(chosen.series)
    except TableError as error:
        print(f"knob_replay: {error}", file=sys.stderr)
        return 2
    half = systems[0 if chosen.half == "choosing" else 1 :: 2]
    with threadpool_limits(limits=1):
        ours, peer = (replayed(half, each, chosen.campaigns) for each in (sequential, fixed))
    _show(ours, peer, systems=len(half), campaigns=chosen.campaigns)
    if chosen.json:
        found = {f"found_{round(100 * gain)}": ours[gain].adopted for gain in GAINS[1:]}
        starts = float(np.mean([tally.starts for tally in ours.values()]))
        whole = {"false_adoption": ours[0.0].false, **found, "starts": starts}
        chosen.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return 0


def read_systems(path: Path) -> list[Array]:
    """Return log medians of the runs of each system with three or more, sorted by its name."""
    samples: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                key = tuple(row[name] for name in COLUMNS[:5])
                samples[key][int(row["sample"])] = float(row["time_s"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise TableError(
            f"{path}: no table of step times with {', '.join(COLUMNS)}: {error!r}"
        ) from error
    runs: dict[tuple[str, ...], set[tuple[float, ...]]] = defaultdict(set)
    for key, steps in samples.items():
        timed = tuple(steps[i] for i in sorted(steps) if FIRST_STEP <= i < FIRST_STEP + STEPS)
        if len(timed) == STEPS:
            runs[key[:SYSTEM]].add(timed)
    systems = [
        np.log(np.median(sorted(runs[key]), axis=1)) for key in sorted(runs) if len(runs[key]) > 2
    ]
    if len(systems) < 2:
        raise TableError(
            f"{path}: two systems with three runs of {FIRST_STEP + STEPS} steps are needed"
        )
    return systems


def replayed(systems: Sequence[Array], campaign: Campaign, campaigns: int) -> Mapping[float, Tally]:
    tallies = {}
    with bars() as progress:
        for gain in progress.track(GAINS, description=campaign.__name__):
            found = [
                _one(pool, gain, campaign, seed=[round(1000 * gain), place, draw])
                for place, pool in enumerate(systems)
                for draw in range(campaigns)
            ]
            tallies[gain] = Tally(*np.mean(found, axis=0).tolist())
    return tallies


def _one(
    pool: Array, gain: float, campaign: Campaign, *, seed: list[int]
) -> tuple[bool, bool, int]:
    """Return whether the planted gain was found, whether another knob was adopted, and starts."""
    generator = np.random.default_rng(seed)
    planted = int(generator.integers(KNOBS))
    gains = np.where((np.arange(KNOBS) == planted) & (gain > 0.0), np.log1p(gain), 0.0)
    adopted, starts = campaign(pool, gains, generator)
    helps = {planted} if gain else set()
    return bool(adopted & helps), bool(adopted - helps), starts


def sequential(pool: Array, gains: Array, generator: np.random.Generator) -> tuple[set[int], int]:
    """The test of `autotune/knobs/`."""
    options = tuple(
        KnobOption(knob=f"knob_{place:02}", value=True, numerics="identical")
        for place in range(len(gains))
    )
    question = KnobQuestion(
        options=options,
        micro_batch_sizes=(1,),
        start_node_hours=START_NODE_HOURS,
        training_node_hours=TRAINING_NODE_HOURS,
        seed=int(generator.integers(2**31)),
    )
    place_of = {option.settings[0]: place for place, option in enumerate(options)}
    rows: list[KnobStart] = []
    while planned := next_starts(rows, question):
        for start in planned:
            gain = sum(gains[place_of[setting]] for setting in start.settings)
            rows.append(
                KnobStart(
                    settings=start.settings,
                    micro_batch_size=1,
                    iteration_time_s=float(np.exp(generator.choice(pool) - gain)),
                    timed_steps=STEPS,
                )
            )
    verdicts = report(rows, question).verdicts
    return {i for i, v in enumerate(verdicts) if v.decision == "adopted"}, len(rows)


def fixed(pool: Array, gains: Array, generator: np.random.Generator) -> tuple[set[int], int]:
    """The peer."""

    def drawn(count: int) -> Array:
        return generator.choice(pool, size=count)

    survivors = np.flatnonzero(drawn(1) - (drawn(len(gains)) - gains) > THRESHOLD)
    adopted = set()
    for knob in survivors.tolist():
        without, with_it = drawn(3), drawn(3) - gains[knob]
        lead = np.median(without) - np.median(with_it)
        if with_it.max() < without.min() and lead > THRESHOLD:
            adopted.add(knob)
    return adopted, len(gains) + 6 * len(survivors)


def _show(
    ours: Mapping[float, Tally], peer: Mapping[float, Tally], *, systems: int, campaigns: int
) -> None:
    rows = [
        (
            f"{100 * gain:.0f} %" if gain else "none",
            *(f"{100 * share:.1f}" if gain else "" for share in (own.adopted, other.adopted)),
            *(f"{100 * share:.1f}" for share in (own.false, other.false)),
            *(f"{count:.1f}" for count in (own.starts, other.starts)),
        )
        for gain, own, other in ((gain, ours[gain], peer[gain]) for gain in GAINS)
    ]
    heads = ("gain", "% found", "fixed", "% with a false one", "fixed", "starts", "fixed")
    caption = f"{campaigns} campaigns on each of {systems} systems, {KNOBS} knobs each"
    console(sys.stdout).print(table("Knobs on repeated runs", heads, rows, caption=caption))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--series", type=Path, required=True, metavar="FILE")
    parser.add_argument("--campaigns", type=at_least_1, default=50, help="of each gain and system")
    parser.add_argument("--half", choices=["choosing", "test"], default="test")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
