"""How many trials each search needs to come within 1 % of the best layout, on simulated machines.

    python tests/benchmarks/search_quality.py [--worlds N] [--trials N] [--surprise S] [--json OUT]

A *world* is a question (model, machine, nodes, space) with a machine that differs from what the
cost model of the search believes: its constants are perturbed, every pair of levels of two
dimensions has an effect of its own that the cost model knows nothing of (`--surprise`, 5 % in
time, and 3 % in memory), and a trial repeats within 1 %. A layout whose true memory exceeds the
limit fails. All figures are simulated: trust the order of the searches, not the counts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.cost_model import Parameters, estimate, perturbed
from autotune.errors import NothingToPropose
from autotune.search import Proposer, SearchTrial
from autotune.search.layouts import POINT_DIMENSIONS, Layouts
from search_spaces.batch import GlobalBatch
from search_spaces.catalog import load_machine, load_model, load_space
from search_spaces.dimension import DimensionChoice
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy

WITHIN = 0.99
MEMORY_EFFECT, REPEATS = 0.03, 0.01
CHECKPOINTING: dict[str, DimensionChoice] = {"activation_checkpointing": ["none", "full"]}
QUESTIONS: dict[str, tuple[str, str, int, Mapping[str, DimensionChoice], int | None]] = {
    "175B on 16 Frontier nodes, table V": ("gpt-175b", "frontier", 16, load_space("table-v"), None),
    "22B on 4 Frontier nodes": ("gpt-22b", "frontier", 4, CHECKPOINTING, 512),
    "Llama 2 70B on 8 DGX A100": ("llama-2-70b", "dgx-a100", 8, CHECKPOINTING, 512),
    "Llama 2 13B on 8 Polaris nodes": ("llama-2-13b", "polaris", 8, CHECKPOINTING, 256),
    "Llama 3 8B on 2 DGX H100": ("llama-3-8b", "dgx-h100", 2, CHECKPOINTING, 128),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """One question with its truth: rates in tokens/s, 0 where the layout runs out of memory."""

    question: str
    seed: int
    space: SearchSpace
    layouts: Layouts
    rates: NDArray[np.float64]
    peaks_gib: NDArray[np.float64]

    @property
    def target(self) -> float:
        return WITHIN * float(self.rates.max())

    def trial(self, row: int) -> SearchTrial:
        """What a trial of this layout would report."""
        strategy = self.layouts.lattice.strategy(row)
        if self.rates[row] == 0.0:
            return SearchTrial(strategy=strategy, state="failed", out_of_memory=True)
        noise = math.exp(np.random.default_rng([self.seed, row]).normal(0.0, REPEATS))
        peak = float(self.peaks_gib[row])
        seconds = math.exp(self.layouts.log_work[row]) / (float(self.rates[row]) * noise)
        return SearchTrial(
            strategy=strategy, state="ok", iteration_time_s=seconds, peak_memory_gib=peak
        )


@dataclass(frozen=True, kw_only=True)
class SearchRun:
    """One search in one world; `trials` is None where it did not get there."""

    search: str
    question: str
    seed: int
    trials: int | None
    failures: int
    seconds_per_proposal: float


Chooser = Callable[[SearchTrial | None], int | None]
"""Told the latest trial, gives the next row; None when it has no more."""


def world(question: str, seed: int, *, surprise: float) -> World:
    model, machine, nodes, choices, batch = QUESTIONS[question]
    dimensions = {k: v for k, v in choices.items() if k != "global_batch_size"}
    bounds = GlobalBatch(minimum=batch, maximum=batch)
    space = SearchSpace.build(
        load_model(model), load_machine(machine), nodes=nodes, choices=dimensions, batch=bounds
    )
    layouts = Layouts.of(space, objective="tokens_per_s")
    truth = perturbed(Parameters.default(space.machine), seed=1000 + seed)
    real = estimate(space.transformer, space.machine, layouts.lattice, parameters=truth)
    generator = np.random.default_rng([seed, len(layouts)])
    seconds = real.iteration_time_s * _structure(layouts, surprise, generator)
    peaks = real.memory_gib * _structure(layouts, MEMORY_EFFECT, generator)
    tokens = layouts.lattice.global_batch_size * space.transformer.seq_length
    rates = np.where(peaks <= real.memory_limit_gib, tokens / seconds, 0.0)
    return World(
        question=question, seed=seed, space=space, layouts=layouts, rates=rates, peaks_gib=peaks
    )


def _structure(layouts: Layouts, size: float, generator: np.random.Generator) -> Any:
    """A factor for each layout, of which every two levels of two dimensions have their own."""
    columns = [c for c in layouts.numbers.T if len(np.unique(c)) > 1]
    pairs = list(itertools.combinations(columns, 2)) or [(columns[0], columns[0])]
    total = np.zeros(len(layouts))
    for one, other in pairs:
        _, level = np.unique(np.stack([one, other], axis=1), axis=0, return_inverse=True)
        total += generator.normal(0.0, 1.0, level.max() + 1)[level]
    return np.exp(size * total / math.sqrt(len(pairs)))


# --- the searches --------------------------------------------------------------------------------


def ours(here: World) -> Chooser:
    proposer = Proposer(here.space, objective="tokens_per_s", seed=here.seed)
    seen: list[SearchTrial] = []

    def choose(latest: SearchTrial | None) -> int | None:
        seen.extend([] if latest is None else [latest])
        try:
            found = proposer.propose(seen, count=1, free_nodes=here.space.nodes)
        except NothingToPropose:
            return None
        return here.layouts.row_of(found[0].strategy)

    return choose


def cost_model_alone(here: World) -> Chooser:
    """The layouts that it predicts to fit, in its order: what a search without learning does."""
    fits = here.layouts.memory_gib <= here.layouts.memory_limit_gib
    rows = iter([*np.flatnonzero(fits).tolist(), *np.flatnonzero(~fits).tolist()])
    return lambda _latest: next(rows, None)


def at_random(here: World) -> Chooser:
    rows = iter(np.random.default_rng(here.seed).permutation(len(here.layouts)).tolist())
    return lambda _latest: next(rows, None)


def pruned_grid(here: World) -> Chooser:
    """From the least model parallelism upward, dropping what a trial dominates: what needs as much
    memory as one that ran out of it, and what splits the model more than one that ran."""
    strategies = list(here.layouts.lattice)
    order = sorted(range(len(strategies)), key=lambda row: _least_parallel(strategies[row]))
    failed: list[Strategy] = []
    ran: list[Strategy] = []

    def remaining() -> Iterator[int]:
        for row in order:
            here_now = strategies[row]
            too_big = any(_needs_more(here_now, than=bad) for bad in failed)
            if not too_big and not any(_splits_more(here_now, than=good) for good in ran):
                yield row

    rows = remaining()

    def choose(latest: SearchTrial | None) -> int | None:
        if latest is not None:
            (failed if latest.state == "failed" else ran).append(latest.strategy)
        return next(rows, None)

    return choose


def _least_parallel(s: Strategy) -> tuple[int, ...]:
    recompute = int(s.activation_checkpointing == "full")
    degree = s.tensor_parallel * s.pipeline_parallel
    return (-s.num_nodes, degree, s.tensor_parallel, recompute, s.micro_batch_size, -s.zero_stage)


def _needs_more(one: Strategy, *, than: Strategy) -> bool:
    """Whether `one` surely needs as much memory on each GPU as `than`."""
    saves = {"none": 0, "selective": 1, "full": 2}
    return (
        one.tensor_parallel <= than.tensor_parallel
        and one.pipeline_parallel <= than.pipeline_parallel
        and one.micro_batch_size >= than.micro_batch_size
        and one.zero_stage <= than.zero_stage
        and one.num_nodes <= than.num_nodes
        and saves[one.activation_checkpointing] <= saves[than.activation_checkpointing]
    )


def _splits_more(one: Strategy, *, than: Strategy) -> bool:
    """Whether `one` is `than` with more model parallelism or recomputation, and else the same."""
    saves = {"none": 0, "selective": 1, "full": 2}
    return (
        one.tensor_parallel >= than.tensor_parallel
        and one.pipeline_parallel >= than.pipeline_parallel
        and one.micro_batch_size == than.micro_batch_size
        and one.zero_stage >= than.zero_stage
        and one.num_nodes <= than.num_nodes
        and saves[one.activation_checkpointing] >= saves[than.activation_checkpointing]
    )


def stock_deephyper(here: World) -> Chooser:
    """`CBO` as it comes over the legal layouts, but for the failures that would end it and for its
    acquisition optimiser, whose genetic algorithm takes seconds and ignores what is legal."""
    from deephyper.hpo import CBO, HpProblem

    numbers = here.layouts.numbers
    problem = HpProblem(seed=here.seed)
    for column, name in enumerate(POINT_DIMENSIONS):
        problem.add_hyperparameter(np.unique(numbers[:, column]).tolist(), name)
    rows = np.random.default_rng(here.seed).permutation(len(here.layouts))[:2000]
    samples = [dict(zip(POINT_DIMENSIONS, numbers[row].tolist(), strict=True)) for row in rows]
    problem.set_sampling_fn(lambda _size: samples)
    search = CBO(
        problem,
        random_state=here.seed,
        log_dir=tempfile.gettempdir(),
        checkpoint_history_to_csv=False,
        acq_optimizer="sampling",
        acq_optimizer_kwargs={"max_total_failures": -1, "n_points": len(samples)},
    )

    def point(strategy: Strategy) -> dict[str, int]:
        row = here.layouts.row_of(strategy)
        return dict(zip(POINT_DIMENSIONS, numbers[row].ravel().tolist(), strict=True))

    def choose(latest: SearchTrial | None) -> int | None:
        if latest is not None:
            work = math.exp(here.layouts.log_work[here.layouts.row_of(latest.strategy)])
            seconds = latest.iteration_time_s
            value = "F_oom" if seconds is None else float(work / seconds)
            search.tell([(point(latest.strategy), value)])
        asked = search.ask(1)[0]
        numbers_asked = np.array([asked[name] for name in POINT_DIMENSIONS])
        return int(np.flatnonzero((numbers == numbers_asked).all(axis=1))[0])

    return choose


SEARCHES: dict[str, Callable[[World], Chooser]] = {
    "ours": ours,
    "cost model alone": cost_model_alone,
    "pruned grid": pruned_grid,
    "stock DeepHyper": stock_deephyper,
    "random": at_random,
}


def run(search: str, here: World, *, most: int) -> SearchRun:
    """Trials until one is within 1 % of the best (by its true rate), at most `most`."""
    choose = SEARCHES[search](here)
    latest: SearchTrial | None = None
    failures, thinking, trials = 0, 0.0, 0
    for trials in range(1, most + 1):
        started = time.perf_counter()
        row = choose(latest)
        thinking += time.perf_counter() - started
        if row is None:
            break
        if here.rates[row] >= here.target:
            return _run(search, here, trials, failures, thinking / trials)
        latest = here.trial(row)
        failures += latest.state == "failed"
    return _run(search, here, None, failures, thinking / max(trials, 1))


def _run(search: str, here: World, trials: int | None, failures: int, seconds: float) -> SearchRun:
    return SearchRun(
        search=search,
        question=here.question,
        seed=here.seed,
        trials=trials,
        failures=failures,
        seconds_per_proposal=seconds,
    )


# --- the report ----------------------------------------------------------------------------------


def summary(runs: list[SearchRun], *, most: int) -> list[dict[str, Any]]:
    """One row for each search. An unsolved run counts as `most` trials."""
    rows: list[dict[str, Any]] = []
    for search in dict.fromkeys(one.search for one in runs):
        mine = [one for one in runs if one.search == search]
        counts = np.array([one.trials or most for one in mine], dtype=float)
        rows.append(
            {
                "search": search,
                "median": float(np.median(counts)),
                "p90": float(np.percentile(counts, 90)),
                "mean": float(counts.mean()),
                "solved": sum(one.trials is not None for one in mine) / len(mine),
                "failures": sum(one.failures for one in mine) / len(mine),
                "seconds_per_proposal": float(np.mean([o.seconds_per_proposal for o in mine])),
            }
        )
    for row in rows:
        row["mean_over_ours"] = row["mean"] / rows[0]["mean"]
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| search | trials, median | 90th pct. | mean | over ours | solved | failures | s each |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        lines.append(
            f"| {r['search']} | {r['median']:.1f} | {r['p90']:.1f} | {r['mean']:.1f} "
            f"| {r['mean_over_ours']:.1f} x | {r['solved']:.0%} | {r['failures']:.1f} "
            f"| {r['seconds_per_proposal']:.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=4, help="machines for each question")
    parser.add_argument("--trials", type=int, default=200, help="at which a search gives up")
    parser.add_argument(
        "--surprise", type=float, default=0.05, help="of time, unknown to the model"
    )
    parser.add_argument("--searches", nargs="+", default=list(SEARCHES), choices=list(SEARCHES))
    parser.add_argument("--json", type=Path, help="write every run and the summary here")
    options = parser.parse_args()
    runs: list[SearchRun] = []
    for question in QUESTIONS:
        worlds = [
            world(question, seed, surprise=options.surprise) for seed in range(options.worlds)
        ]
        fit = np.mean([np.mean(one.rates > 0) for one in worlds])
        print(f"{question}: {len(worlds[0].layouts)} layouts, {fit:.0%} fit", flush=True)
        mine = [run(s, one, most=options.trials) for s in options.searches for one in worlds]
        print("   ", {s: [r.trials for r in mine if r.search == s] for s in options.searches})
        runs += mine
    rows = summary(runs, most=options.trials)
    print(f"\nSimulated; {len(QUESTIONS) * options.worlds} worlds.\n{table(rows)}")
    if options.json:
        document = {"simulated": True, "summary": rows, "runs": [asdict(one) for one in runs]}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
