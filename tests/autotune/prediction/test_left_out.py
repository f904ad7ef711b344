from __future__ import annotations

from typing import Any

import pytest

from autotune.cost_model import estimate
from autotune.prediction.campaign import check_campaign
from autotune.prediction.left_out import left_out, most_promising
from autotune.resolution import strategy_of
from autotune.schemas.predictions import LeftOut
from evaluators.trainer.support import CAPABILITIES
from search_spaces.lattice import Lattice
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.space import SearchSpace
from tests.autotune.records import request

NAMED: dict[str, Any] = {
    "tensor_parallel": [1, 2, 4, 8],
    "pipeline_parallel": [1, 2, 4, 5, 8],
    "micro_batch_size": [1, 2],
    "zero_stage": [0, 1],
    "global_batch_size": 512,
}


def space_of(program: ProgramCapabilities = ANY_PROGRAM, **spec: Any) -> SearchSpace:
    return check_campaign(
        request(model="70B", machine="dgx-h100", nodes=8, space=spec), program=program
    )


def by_dimensions(space: SearchSpace) -> dict[tuple[str, ...], LeftOut]:
    return {tuple(f.dimensions): f for f in left_out(space, objective="tokens_per_s")}


def rate(space: SearchSpace, answer: LeftOut) -> float:
    """Predicted samples a second, by the cost model itself."""
    gpus = space.machine.gpus_per_node
    lattice = Lattice.of([strategy_of(answer.strategy)], gpus_per_node=gpus)
    predicted = estimate(space.transformer, space.machine, lattice)
    assert predicted.fits[0]
    return float(lattice.global_batch_size[0] / predicted.iteration_time_s[0])


def test_a_space_that_only_ever_recomputes_is_told_what_that_costs() -> None:
    space = space_of(**NAMED, sequence_parallel=True)
    best = most_promising(space, objective="tokens_per_s")
    assert best is not None
    found = by_dimensions(space)
    alone = found["activation_checkpointing",]
    assert alone.strategy.activation_checkpointing == "none"
    assert alone.gain > 0.05
    assert alone.gain == pytest.approx(
        rate(space, alone) * space.transformer.seq_length / best.rate - 1.0
    )
    words = f"activation_checkpointing=none with TP {alone.strategy.tensor_parallel}, PP "
    assert alone.sentence.startswith(words)
    assert f"is predicted {100 * alone.gain:.0f} % faster" in alone.sentence


def test_what_is_better_is_better_at_the_same_nodes_and_batch() -> None:
    space = space_of(preset="table-v", num_nodes=[8], pipeline_parallel=[1, 2, 4, 8])
    best = most_promising(space, objective="tokens_per_s")
    assert best is not None
    found = left_out(space, objective="tokens_per_s")
    assert [f.gain for f in found] == sorted((f.gain for f in found), reverse=True)
    assert found
    assert min(f.gain for f in found) >= 0.02
    gpus = space.machine.gpus_per_node
    for answer in found:
        strategy = strategy_of(answer.strategy)
        assert strategy.global_batch_size(gpus) == best.strategy.global_batch_size(gpus)
        assert strategy.num_nodes == best.strategy.num_nodes
        assert strategy.precision == best.strategy.precision
        for name in answer.dimensions:
            assert getattr(strategy, name) not in space.dimensions[name]


def test_all_together_comes_where_it_is_better_than_each_alone() -> None:
    found = left_out(space_of(**NAMED), objective="tokens_per_s")
    together = [f for f in found if len(f.dimensions) > 1]
    assert [f.sentence.startswith("all together, ") for f in together] == [True]
    assert together[0] is found[0]


def test_an_automatic_space_leaves_out_nothing_that_the_program_can() -> None:
    assert left_out(space_of(CAPABILITIES, global_batch_size=512), objective="tokens_per_s") == []
    # Interleaving is part of no automatic space, and some program can do it.
    dimensions = by_dimensions(space_of(global_batch_size=512))
    assert set(dimensions) <= {("virtual_stages",)}


def test_a_program_is_not_promised_what_it_cannot_run() -> None:
    found = left_out(space_of(CAPABILITIES, **NAMED), objective="tokens_per_s")
    assert found
    assert not any(f.strategy.sequence_parallel or f.strategy.virtual_stages > 1 for f in found)
