"""Seconds that the choice of one trial takes, ours and stock DeepHyper's, on one core.

    python tests/benchmarks/proposal_speed.py [--repeat N]

Both know the same trials of the same space and are asked for one more. Ours fits its belief to all
of them anew, as after a restart; stock DeepHyper, the product's search `deephyper`, is built from
all of them anew, too. Trials are simulated. CPU seconds of the process, so that a busy machine
counts as an idle one; the median of the repeats, which differ in their trials.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

from autotune.measurement import metrics, probe_accumulations
from autotune.schemas.choices import Objective, TrialState
from autotune.search import Proposer, SearchTrial
from autotune.search.layouts import Layouts
from evaluators.simulated import simulate
from evaluators.trial import TrialProtocol, TrialRequest
from search_spaces.batch import GlobalBatch
from search_spaces.catalog import load_machine, load_model
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from tests.benchmarks.worlds.searches import ProductSearch

OBJECTIVE: Objective = "tokens_per_s"


@dataclass(frozen=True, kw_only=True)
class Question:
    """A space, and how many of its layouts are known."""

    nodes: tuple[int, ...]
    flash_attention: tuple[bool, ...]
    trials: int

    def space(self) -> SearchSpace:
        """22B on Frontier, with everything that a program may choose."""
        return SearchSpace.build(
            load_model("gpt-22b"),
            load_machine("frontier"),
            nodes=max(self.nodes),
            choices={
                "num_nodes": list(self.nodes),
                "activation_checkpointing": ["none", "selective", "full"],
                "sequence_parallel": [False, True],
                "zero_stage": [0, 1, 2, 3],
                "flash_attention": list(self.flash_attention),
            },
            batch=GlobalBatch(minimum=2048, maximum=2048),
        )


QUESTIONS = (
    Question(nodes=(16, 32), flash_attention=(True,), trials=50),
    Question(nodes=(2, 4, 8, 16, 32, 64, 128, 256), flash_attention=(False, True), trials=300),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args()
    print("| candidates | trials known | ours, CPU s | stock DeepHyper, CPU s | ratio |")
    print("|---|---|---|---|---|")
    with threadpool_limits(limits=1):
        for question in QUESTIONS:
            print(compared(question, repeat=chosen.repeat), flush=True)


def compared(question: Question, *, repeat: int) -> str:
    """A row of the table."""
    space = question.space()
    layouts = Layouts.of(space, objective=OBJECTIVE)
    ours, stock = [], []
    for seed in range(repeat):
        rows = np.random.default_rng(seed).choice(len(layouts), question.trials, replace=False)
        known = [trial(space, layouts.lattice.strategy(row), seed=seed) for row in rows.tolist()]
        proposer = Proposer(space, objective=OBJECTIVE, seed=seed)
        proposer.propose([], count=1, free_nodes=max(question.nodes))
        ours.append(cpu_s(lambda: proposer.propose(known, count=1, free_nodes=10**6)))  # noqa: B023
        peer = ProductSearch("deephyper", layouts, space.transformer, seed=seed)
        told = list(zip(rows.tolist(), known, strict=True))
        for row, one in told[:-1]:
            peer.tell(row, rate(one))
        stock.append(cpu_s(lambda: asked(peer, *told[-1])))  # noqa: B023
    mine, theirs = median(ours), median(stock)
    return (
        f"| {len(layouts):,} | {question.trials} | {mine:.2f} | {theirs:.2f} "
        f"| {mine / theirs:.1f} |"
    )


def rate(known: SearchTrial) -> float | None:
    return 1.0 / known.iteration_time_s if known.iteration_time_s else None


def asked(peer: ProductSearch, row: int, known: SearchTrial) -> int | None:
    peer.tell(row, rate(known))
    return peer.ask()


def cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def trial(space: SearchSpace, strategy: Strategy, *, seed: int) -> SearchTrial:
    """What the simulator says of a layout."""
    request = TrialRequest(
        token="speed",
        transformer=space.transformer,
        machine=space.machine,
        strategy=strategy,
        protocol=TrialProtocol(accumulations=probe_accumulations(strategy), time_limit_s=1e9),
        directory=Path(),
        seed=seed,
    )
    outcome = simulate(request, started_at=datetime.now(UTC)).outcome
    if outcome.status is not TrialState.OK:
        return SearchTrial(strategy=strategy, state="failed", out_of_memory=True)
    figures = metrics(space.transformer, space.machine, strategy, outcome.measurements)
    return SearchTrial(
        strategy=strategy,
        state="ok",
        iteration_time_s=figures.iteration_time_s,
        peak_memory_gib=max(outcome.peak_memory_gib),
    )


if __name__ == "__main__":
    main()
