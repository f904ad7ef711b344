"""The explanation of a whole campaign, and which request has what lies beyond its space."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from autotune.calibration import Calibration, observations_of
from autotune.explanation.summary import explain
from autotune.explanation.what_if import fields_with
from autotune.recommendation.recommendation import recommend
from autotune.schemas.explanations import Explanation
from autotune.schemas.resolution import space_of
from autotune.schemas.spaces import SpaceSpec
from autotune.schemas.trials import Trial
from autotune.search import SearchTrial
from search_spaces.space import SearchSpace
from tests.autotune.recommendation.examples import A, B, C, campaign, trial
from tests.autotune.records import MACHINE, MODEL, strategy

SPEC = SpaceSpec(
    tensor_parallel=[1, 2, 4],
    pipeline_parallel=[4],
    micro_batch_size=[1],
    gradient_accumulation_steps="auto",
    zero_stage=[1],
    num_nodes=[2],
    global_batch_size=64,
)


def space(spec: SpaceSpec = SPEC, *, nodes: int = 2) -> SearchSpace:
    return space_of(spec, MODEL, MACHINE, nodes=nodes)


def explained(*trials: Trial, of: SearchSpace) -> Explanation:
    calibration = Calibration.of(MACHINE, observations_of(MODEL, trials, machine=MACHINE))
    return explain(campaign(), recommend(campaign(), trials), [], calibration, space=of)


def test_three_sentences_give_the_best_its_baseline_and_its_edge() -> None:
    found = explained(
        trial(1, A, seconds=3.0, purpose="baseline"),
        trial(2, B, seconds=1.0),
        trial(3, C, seconds=1.2),
        of=space(),
    )
    roles = [each.role for each in found.strategies]
    assert roles == ["winner", "runner_up", "baseline"]
    assert [each.relative_cost for each in found.strategies] == pytest.approx([1.0, 1.2, 3.0])
    for each in found.strategies:
        assert sum(each.time_parts_s.values()) == pytest.approx(each.iteration_time_s)
        assert sum(each.memory_parts_gib.values()) == pytest.approx(each.memory_gib)
    own, against, beyond = found.sentences
    assert re.match(rf"{re.escape(B.short())}: \d+ % of a step is ", own)
    assert against.startswith("The baseline (TP 1) takes 3 times as long: ")
    first = f"Outside the space: {found.left_out[0].sentence}" if found.left_out else "Nothing"
    assert beyond.startswith(first)


def test_a_best_that_the_space_lacks_has_no_edge() -> None:
    outside = trial(1, strategy(tp=2, pp=4, mbs=2), seconds=1.0)
    assert explained(outside, of=space()).left_out == []


def test_a_peak_above_the_usable_memory_does_not_hide_the_limit() -> None:
    full = explained(trial(1, A, seconds=1.0, peak=63.5), of=space())
    assert full.memory_limit_gib < 63.5 < full.gpu_memory_gib == 64.0


def test_the_cause_and_each_change_appear_once_if_nothing_ran() -> None:
    wide = space_of(
        SpaceSpec(tensor_parallel=[1], pipeline_parallel=[1], micro_batch_size=[8]),
        MODEL,
        MACHINE,
        nodes=1,
    )
    lattice = wide.lattice()
    tried = [
        SearchTrial(strategy=lattice.strategy(row), state="failed", out_of_memory=True)
        for row in range(len(lattice))
    ]
    seen = [each.observation(MODEL) for each in tried]
    calibration = Calibration.of(MACHINE, [each for each in seen if each is not None])
    found = explain(campaign(), None, tried, calibration, space=wide)
    assert found.strategies == []
    assert found.failures is not None
    assert found.sentences == [found.failures.sentence]
    changes = [tuple(each.fields) for each in found.failures.suggestions]
    assert changes
    assert len(set(changes)) == len(changes)


def test_nothing_is_explained_before_anything_has_ended() -> None:
    found = explain(campaign(), None, [], Calibration.of(MACHINE, []), space=space())
    assert (found.strategies, found.failures, found.sentences) == ([], None, [])


def test_a_request_with_the_changed_fields_has_the_strategy() -> None:
    own = space()
    assert fields_with(own, B) == {}
    beyond = replace(B, micro_batch_size=2, gradient_accumulation_steps=8, num_nodes=4)
    fields = fields_with(own, beyond)
    assert fields == {
        "nodes": 4,
        "space.micro_batch_size": [1, 2],
        "space.gradient_accumulation_steps": "auto",
        "space.num_nodes": [2, 4],
    }
    changes = {name.removeprefix("space."): value for name, value in fields.items()}
    nodes = changes.pop("nodes")
    assert isinstance(nodes, int)
    lattice = space(SPEC.model_copy(update=changes), nodes=nodes).lattice()
    assert beyond in [lattice.strategy(row) for row in range(len(lattice))]


def test_a_free_batch_is_given_the_accumulation_itself() -> None:
    free = space(
        SPEC.model_copy(update={"global_batch_size": None, "gradient_accumulation_steps": [8]})
    )
    fields = fields_with(free, replace(B, gradient_accumulation_steps=16, sequence_parallel=True))
    assert fields["space.gradient_accumulation_steps"] == [8, 16]
    assert fields["space.sequence_parallel"] == [False, True]
