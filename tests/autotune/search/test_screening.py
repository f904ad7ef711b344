"""Layouts measured on few nodes that stand for many: on how few, and when not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from autotune.schemas.campaigns import FewNodes
from autotune.schemas.requests import CampaignCreate
from autotune.schemas.resolution import space_of
from autotune.search import Proposal, Proposer, SearchTrial, few_nodes
from autotune.search.screening import information_share
from autotune.search.stand_ins import FewerReplicas
from search_spaces.catalog import load_model
from search_spaces.errors import InvalidInputs
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from tests.autotune.records import MACHINE, request, strategy
from tests.autotune.search.scene import ok, oom

NODES = 64
FEW = 4
WIDE: dict[str, Any] = {
    "tensor_parallel": [2, 4, 8],
    "pipeline_parallel": [1, 2, 4],
    "micro_batch_size": [1, 2, 4],
    "zero_stage": [1],
    "num_nodes": NODES,
    "activation_checkpointing": "full",
    "global_batch_size": 2048,
}
BASELINE = strategy(tp=8, pp=1, gas=32, nodes=NODES)


def request_and_space(
    *, model: str = "gpt-22b", nodes: int = NODES, space: dict[str, Any] = WIDE, **others: Any
) -> tuple[CampaignCreate, SearchSpace]:
    wanted = request(model=model, nodes=nodes, space=space, **others)
    return wanted, space_of(wanted.space, load_model(model), MACHINE, nodes=nodes)


def width(**changes: Any) -> FewNodes:
    return few_nodes(*request_and_space(**changes))


@cache
def space_22b() -> SearchSpace:
    return request_and_space()[1]


def proposer() -> Proposer:
    return Proposer(space_22b(), objective="tokens_per_s", seed=3, stand_ins=FewerReplicas(FEW))


def following(seen: list[SearchTrial], *, free_nodes: int = NODES) -> Proposal:
    return proposer().propose(seen, count=1, free_nodes=free_nodes)[0]


def narrow(layout: Strategy, *, factor: float = 1.0) -> SearchTrial:
    """A trial on few nodes that goes as predicted, `factor` times as fast."""
    trial = ok(space_22b(), FewerReplicas(FEW).of(layout), factor=factor)
    return replace(trial, stands_for=layout.num_nodes)


def test_automatic_is_where_most_is_learned_for_a_node_hour() -> None:
    chosen = width()
    assert chosen.nodes is not None
    assert chosen.nodes <= NODES // 8
    assert chosen.reason.startswith(f"Trials run on {chosen.nodes} nodes and stand for {NODES}: ")
    assert information_share(NODES, NODES) == 1.0
    assert information_share(16, NODES) > information_share(4, NODES) > 0.1


def test_trials_run_in_full_if_few_nodes_mislead_or_save_little() -> None:
    assert width(screen_nodes="off").nodes is None
    assert width(protocol={"confirmations": 0}).nodes is None
    assert width(nodes=8, space=WIDE | {"num_nodes": 8}).nodes is None
    trillion = width(model="gpt-1t", nodes=128, space={"num_nodes": 128, "global_batch_size": 1600})
    assert trillion.nodes is None
    assert "2 replicas fit of too few" in trillion.reason


@pytest.mark.parametrize("nodes", [NODES, 3 * NODES])
def test_a_width_that_stands_for_nothing_is_refused(nodes: int) -> None:
    with pytest.raises(InvalidInputs) as refusal:
        width(screen_nodes=nodes)
    assert [problem.field for problem in refusal.value.problems] == ["screen_nodes"]


def test_full_measurements_are_preceded_by_ones_on_few_nodes() -> None:
    proposal = following([ok(space_22b(), BASELINE)])
    assert proposal.strategy == BASELINE
    assert proposal.stand_in == FewerReplicas(FEW).of(BASELINE)
    both = [ok(space_22b(), BASELINE), narrow(BASELINE)]
    assert proposer().projections(both).count == 1
    after = following(both)
    assert after.run.num_nodes == FEW
    assert after.strategy.num_nodes == NODES
    assert after.strategy != BASELINE
    assert after.expected.node_hours < following([]).expected.node_hours * NODES / FEW


def test_the_leader_is_measured_in_full_after_a_few_stand_ins() -> None:
    seen: list[SearchTrial] = []
    for _ in range(3):
        proposal = following(seen)
        assert proposal.stand_in is not None
        seen.append(narrow(proposal.strategy))
    check = following(seen)
    assert check.stand_in is None
    assert check.strategy in {trial.full for trial in seen}
    waiting = [*seen, replace(narrow(BASELINE), state="running", iteration_time_s=None)]
    assert proposer().propose(waiting, count=1, free_nodes=NODES - FEW) == []


def test_a_contradicted_projection_moves_the_search_to_all_nodes() -> None:
    seen = [ok(space_22b(), BASELINE, factor=0.6), narrow(BASELINE)]
    projections = proposer().projections(seen)
    assert projections.contradicted
    assert projections.ratio == pytest.approx(1 / 0.6, rel=0.02)
    assert following(seen).stand_in is None
    assert (
        not proposer().projections([ok(space_22b(), BASELINE, factor=0.99), seen[1]]).contradicted
    )


def test_a_layout_whose_stand_in_ran_out_of_memory_runs_in_full() -> None:
    _, space = request_and_space(
        space=WIDE | {"tensor_parallel": 8, "pipeline_parallel": 1, "micro_batch_size": 1}
    )
    only = Proposer(space, objective="tokens_per_s", seed=3, stand_ins=FewerReplicas(FEW))
    [first] = only.propose([], count=1, free_nodes=NODES)
    assert first.stand_in is not None
    failed = replace(oom(first.stand_in), stands_for=NODES)
    [again] = only.propose([failed], count=1, free_nodes=NODES)
    assert (again.strategy, again.stand_in) == (first.strategy, None)


def test_twins_are_closed_and_the_best_may_be_a_projection() -> None:
    seen = [ok(space_22b(), BASELINE), narrow(BASELINE)]
    fast = following(seen).strategy
    seen.append(narrow(fast, factor=1.2))
    best = following(seen).expected.best_so_far
    base = 2048 * 2048 / (seen[0].iteration_time_s or 0.0)
    assert best is not None
    assert best > 1.1 * base
    assert fast.layout_key() != following(seen).strategy.layout_key()
    outlook = proposer().outlook(seen)
    assert outlook is not None
    assert proposer().outlook(seen, best=fast) == outlook
