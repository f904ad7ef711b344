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
from functools import partial
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

from autotune.search import Proposer
from tests.benchmarks.worlds.searches import ProductSearch
from tests.benchmarks.worlds.world import Question, World


def question(*nodes: int, flash_attention: list[bool]) -> Question:
    """22B on Frontier, with everything that a program may choose."""
    return Question(
        model="gpt-22b",
        machine="frontier",
        nodes=max(nodes),
        batch=2048,
        earlier=("llama-2-7b", 1),
        choices={
            "num_nodes": list(nodes),
            "activation_checkpointing": ["none", "selective", "full"],
            "sequence_parallel": [False, True],
            "zero_stage": [0, 1, 2, 3],
            "flash_attention": flash_attention,
        },
    )


QUESTIONS = (
    (question(16, 32, flash_attention=[True]), 50),
    (question(2, 4, 8, 16, 32, 64, 128, 256, flash_attention=[False, True]), 300),
)
"""Each with the number of trials that are known."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args()
    print("| candidates | trials known | ours, CPU s | stock DeepHyper, CPU s | ratio |")
    print("|---|---|---|---|---|")
    with threadpool_limits(limits=1):
        for asked, trials in QUESTIONS:
            print(compared(asked, trials, repeat=chosen.repeat), flush=True)


def compared(asked: Question, trials: int, *, repeat: int) -> str:
    """A row of the table."""
    ours, stock = [], []
    for seed in range(repeat):
        here = World.of(asked, seed=seed, surprise=0.1)
        rows = np.random.default_rng(seed).choice(len(here.layouts), trials, replace=False)
        known = [here.trial(row) for row in rows.tolist()]
        proposer = Proposer(here.space, objective="tokens_per_s", seed=seed)
        proposer.propose([], count=1, free_nodes=asked.nodes)
        ours.append(cpu_s(partial(proposer.propose, known, count=1, free_nodes=10**6)))
        peer = ProductSearch("deephyper", here.layouts, here.space.transformer, seed=seed)
        for row in rows.tolist():
            peer.tell(row, float(here.rates[row]) or None)
        stock.append(cpu_s(peer.ask))
    mine, theirs = median(ours), median(stock)
    candidates = len(here.layouts)
    return f"| {candidates:,} | {trials} | {mine:.2f} | {theirs:.2f} | {mine / theirs:.1f} |"


def cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    main()
