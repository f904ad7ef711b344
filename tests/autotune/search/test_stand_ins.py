"""What runs in layouts' places: with fewer layers, in shorter pipelines."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from autotune.cost_model import estimate
from autotune.prediction.campaign import check_campaign
from autotune.prediction.plan import plan
from autotune.schemas.requests import CampaignCreate
from autotune.schemas.resolution import space_of
from autotune.search import Proposer, SearchTrial, few_nodes
from autotune.search.stand_ins import FewerLayers
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.lattice import Lattice
from search_spaces.rules import findings
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from tests.autotune.records import request
from tests.autotune.search.scene import ok

QUARTER = FewerLayers(num_layers=24, full_layers=96)
LARGE: dict[str, Any] = {
    "tensor_parallel": [2, 4, 8],
    "pipeline_parallel": [4, 8, 16, 32],
    "micro_batch_size": [1, 2, 4],
    "zero_stage": 1,
    "num_nodes": 64,
    "activation_checkpointing": "full",
    "global_batch_size": 1024,
}


def request_175b(**changes: Any) -> CampaignCreate:
    plain = {"model": "gpt-175b", "nodes": 64, "pool_nodes": 16, "screen_layers": 24}
    return request(**plain | {"space": LARGE} | changes)


@cache
def space_175b(**changes: Any) -> SearchSpace:
    return check_campaign(request_175b(space=LARGE | changes))


def refusal(**changes: Any) -> InvalidInput:
    with pytest.raises(InvalidInputs) as refused:
        check_campaign(request_175b(**changes))
    [problem] = refused.value.problems
    assert problem.field == "screen_layers"
    return problem


def narrow(space: SearchSpace, strategy: Strategy, *, factor: float = 1.0) -> SearchTrial:
    """A trial with a quarter of the layers that goes as predicted, `factor` times as fast."""
    smaller = SearchSpace.build(
        space.transformer.with_layers(24), space.machine, nodes=space.nodes, choices={}
    )
    ran = ok(smaller, QUARTER.of(strategy), factor=factor)
    return replace(ran, stands_for=strategy.num_nodes, num_layers=24)


def test_a_stand_in_is_legal_and_changes_only_pipeline_and_nodes() -> None:
    wanted = request_175b(
        space={
            "tensor_parallel": [1, 4, 8],
            "pipeline_parallel": [1, 2, 4, 6, 8, 12, 16, 24],
            "micro_batch_size": [1, 4],
            "gradient_accumulation_steps": [16, 24],
            "virtual_stages": [1, 2],
            "num_nodes": [6, 16, 64],
        }
    )
    space = space_of(wanted.space, *_subject(), nodes=64)
    lattice, gpus = space.lattice(), space.machine.gpus_per_node
    counts = {}
    for layers in (12, 24, 36, 48, 72, 95):
        stand_ins = FewerLayers(num_layers=layers, full_layers=96)
        possible = stand_ins.possible(space, lattice)
        full = lattice.take(possible)
        ran = stand_ins.of_all(full)
        counts[layers] = len(full)
        np.testing.assert_array_equal(
            layers * full["pipeline_parallel"], 96 * ran["pipeline_parallel"]
        )
        np.testing.assert_array_equal(full.data_parallel, ran.data_parallel)
        assert np.all(ran["pipeline_parallel"] >= 2)
        smaller = space.transformer.with_layers(layers)
        for strategy, short in list(zip(full, ran, strict=True))[::7]:
            broken = findings(short, smaller, space.machine)
            assert not [each for each in broken if each.severity == "refuse"]
            assert stand_ins.of(strategy) == short
            trial = SearchTrial(
                strategy=short,
                state="running",
                stands_for=strategy.num_nodes,
                num_layers=layers,
            )
            assert trial.full == strategy
            assert trial.run(space.transformer).transformer == smaller
            assert short.global_batch_size(gpus) == strategy.global_batch_size(gpus)
    assert counts[48] > counts[24] > counts[12] > 0
    assert counts[95] == 0


def _subject() -> tuple[Any, Any]:
    space = space_175b()
    return space.transformer, space.machine


def test_what_cannot_stand_in_is_refused_with_what_can() -> None:
    assert refusal(screen_layers=96).reason == "gpt-175b has 96 layers"
    unfit = refusal(screen_layers=20)
    assert "keeps a pipeline of 2 stages or more" in unfit.reason
    assert unfit.valid == "off, 6, 9, 12, 15, 18, 21, 24"
    assert "not both" in refusal(screen_nodes=16).reason
    flat = LARGE | {"pipeline_parallel": 1, "tensor_parallel": 8, "zero_stage": 3}
    assert "has a pipeline" in refusal(space=flat, pool_nodes=64).reason
    few = refusal(pool_nodes=8)
    assert "need 16 nodes or more, and all trials share 8" in few.reason
    assert few.valid == "off, 6, 9, 12"


def test_a_pool_that_only_fits_stand_ins_is_refused_without_them() -> None:
    with pytest.raises(InvalidInputs) as refused:
        check_campaign(request_175b(screen_layers="off"))
    assert [problem.field for problem in refused.value.problems] == ["pool_nodes"]
    few = plan(request_175b(), space_175b())
    assert few.screening is not None
    assert few.cost is not None
    assert (few.screening.layers, few.screening.nodes) == (24, None)
    assert "24 of 96 layers" in few.screening.reason
    assert "None of these can be measured in full on the 16 nodes" in few.screening.reason
    in_full = plan(request_175b(pool_nodes=64), space_175b()).cost
    assert in_full is not None
    each = few.cost.node_hours_per_trial
    assert each == pytest.approx(in_full.node_hours_per_trial, rel=0.05)
    assert few.cost.node_hours < in_full.node_hours


def test_the_pool_decides_whether_the_leader_is_measured_in_full() -> None:
    space = space_175b()

    def following(seen: list[SearchTrial], *, pool: int) -> Any:
        proposer = Proposer(
            space, objective="tokens_per_s", seed=3, stand_ins=QUARTER, pool_nodes=pool
        )
        return proposer.propose(seen, count=1, free_nodes=pool)[0]

    seen: list[SearchTrial] = []
    for _ in range(3):
        proposal = following(seen, pool=16)
        assert (proposal.running.num_layers, proposal.run.num_nodes) == (24, 16)
        assert proposal.strategy.pipeline_parallel == 4 * proposal.run.pipeline_parallel
        seen.append(narrow(space, proposal.strategy))
    assert following(seen, pool=16).running.num_layers == 24
    check = following(seen, pool=64)
    assert (check.stand_in, check.run.num_nodes) == (None, 64)
    assert check.strategy in {trial.full for trial in seen}


def test_what_fits_with_few_layers_alone_is_no_best() -> None:
    """Without checkpointing a stage of a deep pipeline holds many micro-batches' activations."""
    space = space_of(
        request_175b(space=LARGE | {"activation_checkpointing": ["none", "full"]}).space,
        *_subject(),
        nodes=64,
    )
    lattice, gpus = space.lattice(), space.machine.gpus_per_node
    in_full = estimate(space.transformer, space.machine, lattice)
    rows = np.flatnonzero(QUARTER.possible(space, lattice) & (in_full.memory_gib > 100.0))
    smaller = space.transformer.with_layers(24)
    short = estimate(smaller, space.machine, QUARTER.of_all(lattice.take(rows)))
    tight = lattice.strategy(int(rows[np.argmin(short.memory_gib)]))
    trial = narrow(space, tight)
    assert (trial.peak_memory_gib or 0.0) < 45.0
    proposer = Proposer(space, objective="tokens_per_s", seed=3, stand_ins=QUARTER, pool_nodes=16)
    assert proposer.outlook([trial]) is None
    [following] = proposer.propose([trial], count=1, free_nodes=16)
    assert following.expected.best_so_far is None
    assert following.strategy.layout_key() != tight.layout_key()
    wide = Lattice.of([following.strategy], gpus_per_node=gpus)
    assert estimate(space.transformer, space.machine, wide).fits.all()


def test_without_screening_all_layers_run() -> None:
    wanted = request_175b(screen_layers="off", pool_nodes=64)
    assert few_nodes(wanted, space_175b()).layers is None
