"""Searches that believe no cost model."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import NothingToPropose
from autotune.schemas.choices import SearchMethod, Surrogate
from autotune.search import Proposer, SearchTrial
from tests.autotune.search.scene import layouts_of, ok, oom, small_space, space_22b

SPACE = small_space(tensor_parallel=[1, 2, 4], micro_batch_size=[1, 2, 4, 8])


def searched(method: SearchMethod, *, seed: int = 0, count: int = 12) -> list[SearchTrial]:
    proposer = Proposer(SPACE, objective="tokens_per_s", seed=seed, method=method)
    seen: list[SearchTrial] = []
    for _ in range(count):
        [proposal] = proposer.propose(seen, count=1, free_nodes=1)
        assert proposal.stand_in is None
        seen.append(ok(SPACE, proposal.strategy))
    return seen


@pytest.mark.parametrize("method", ["random", "grid", "deephyper"])
def test_each_tries_every_layout_once_and_follows_only_its_seed(method: SearchMethod) -> None:
    seen = searched(method)
    assert len({trial.strategy for trial in seen}) == len(layouts_of(SPACE)) == 12
    assert searched(method, count=5) == seen[:5]
    with pytest.raises(NothingToPropose):
        Proposer(SPACE, objective="tokens_per_s", seed=0, method=method).propose(
            seen, count=1, free_nodes=1
        )
    if method != "grid":
        assert searched(method, seed=1, count=5) != seen[:5]


def test_deephyper_learns_from_its_trials() -> None:
    """After its initial points, a winner changes what it proposes, and so does the surrogate."""
    space = space_22b()
    lattice = layouts_of(space).lattice
    strategies = [lattice.strategy(row) for row in range(0, len(lattice), len(lattice) // 30)]
    fast = [ok(space, s, factor=10.0 if s.tensor_parallel == 8 else 0.1) for s in strategies]
    slow = [ok(space, s, factor=0.1 if s.tensor_parallel == 8 else 10.0) for s in strategies]

    def tensor_parallel_of(seen: list[SearchTrial], surrogate: Surrogate = "forest") -> int:
        proposer = Proposer(
            space, objective="tokens_per_s", seed=0, method="deephyper", surrogate=surrogate
        )
        [proposal] = proposer.propose(seen, count=1, free_nodes=4)
        assert proposal.strategy not in strategies
        return proposal.strategy.tensor_parallel

    for surrogate in ("forest", "gaussian_process"):
        assert tensor_parallel_of(fast, surrogate) == 8
        assert tensor_parallel_of(slow, surrogate) != 8


def test_the_grid_raises_model_parallelism_and_prunes_by_memory() -> None:
    first, second, *_ = searched("grid")
    assert (first.strategy.tensor_parallel, first.strategy.micro_batch_size) == (1, 1)
    assert (second.strategy.tensor_parallel, second.strategy.micro_batch_size) == (1, 2)
    proposer = Proposer(SPACE, objective="tokens_per_s", seed=0, method="grid")
    [proposal] = proposer.propose([first, oom(second.strategy)], count=1, free_nodes=1)
    assert proposal.strategy.tensor_parallel == 2  # no larger micro-batch of TP 1


def test_failures_count_among_deephypers_initial_points() -> None:
    """One in seven layouts fits. Of seven dimensions or more, 15 points are random."""
    space = space_22b()
    lattice, needed = layouts_of(space).lattice, layouts_of(space).memory_gib
    few = np.flatnonzero(needed < np.quantile(needed, 0.15))
    fitting = set(map(lattice.strategy, few.tolist()))
    proposer, at_random = (
        Proposer(space, objective="tokens_per_s", seed=0, method=method)
        for method in ("deephyper", "random")
    )
    seen: list[SearchTrial] = []
    for _ in range(15):
        [proposal] = proposer.propose(seen, count=1, free_nodes=4)
        assert proposal.expected.chosen_by == "random"
        fits = proposal.strategy in fitting
        seen.append(ok(space, proposal.strategy) if fits else oom(proposal.strategy))
    assert 10 <= sum(trial.out_of_memory for trial in seen) < 15
    [chosen] = proposer.propose(seen, count=1, free_nodes=4)
    assert chosen.expected.chosen_by == "surrogate"
    [by_chance] = at_random.propose(seen, count=1, free_nodes=4)
    assert by_chance.expected.chosen_by == "random"
    assert chosen.strategy != by_chance.strategy
    failures = [trial if trial.out_of_memory else oom(trial.strategy) for trial in seen]
    [hopeful] = proposer.propose(failures, count=1, free_nodes=4)
    assert hopeful.expected.chosen_by == "random", "a surrogate needs a success"


@pytest.mark.parametrize("method", ["grid", "deephyper"])
def test_what_needs_as_much_as_a_failure_is_skipped(method: SearchMethod) -> None:
    smallest = [
        s for s in map(layouts_of(SPACE).lattice.strategy, range(12)) if s.micro_batch_size == 1
    ]
    proposer = Proposer(SPACE, objective="tokens_per_s", seed=0, method=method)
    with pytest.raises(NothingToPropose, match="needs as much memory"):
        proposer.propose([oom(s) for s in smallest], count=1, free_nodes=1)
    left = [oom(s) for s in smallest if s.tensor_parallel < 4]
    [proposal] = proposer.propose(left, count=1, free_nodes=1)
    assert proposal.strategy.tensor_parallel == 4
