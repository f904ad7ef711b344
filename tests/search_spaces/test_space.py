from __future__ import annotations

import re
import tracemalloc
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import numpy as np
import pytest

from search_spaces.batch import GlobalBatch
from search_spaces.catalog import load_machine, load_model, load_space, space_names
from search_spaces.dimensions import DIMENSIONS, TABLE
from search_spaces.enumeration import COMBINED, Enumeration, Grid
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.lattice import Lattice, Mask
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities, lacking
from search_spaces.rule import Severity
from search_spaces.rules import findings, rule_masks
from search_spaces.space import MOST_AUTOMATIC_POINTS, LegalSampler, SearchSpace
from search_spaces.strategy import Strategy
from tests.search_spaces.scene import FRONTIER, GPT_175B, table_v


def faults(nodes: int = 2, **choices: Any) -> dict[str, InvalidInput]:
    with pytest.raises(InvalidInputs) as refusal:
        SearchSpace.build(GPT_175B, FRONTIER, nodes=nodes, choices=choices)
    return {problem.field: problem for problem in refusal.value.problems}


def test_table_v_has_3264_points() -> None:
    space = table_v()
    enumeration = space.enumerate()
    assert enumeration.raw == space.raw == 3264
    # 7 of 24 (TP, PP) pairs do not divide 96 GPUs or 128 GPUs: PP 16 with TP 4 or 8 on 12 nodes,
    # PP 12 with any TP on 16 nodes, PP 8 with TP 8 on 12.
    assert enumeration.removed == {"world_size": 7 * 17 * 2 * 2}
    assert len(enumeration.legal) == 3264 - 476
    assert enumeration.warned["accumulation_fills_pipeline"] > 0


def test_every_enumerated_strategy_is_legal_and_comes_once() -> None:
    lattice = table_v().lattice()
    every = list(lattice)
    assert len(set(every)) == len(every)
    for one in every[::97]:
        assert all(f.severity == "warn" for f in findings(one, GPT_175B, FRONTIER))


def test_the_ready_space_of_this_machine() -> None:
    tiny, local = load_model("tiny"), load_machine("local")
    space = SearchSpace.build(tiny, local, nodes=1, choices=load_space("tiny-local"))
    layouts = {(s.tensor_parallel, s.pipeline_parallel) for s in space.lattice()}
    assert {(1, 1), (4, 1), (1, 4), (2, 2)} <= layouts
    assert space_names() == ["table-v", "tiny-local", "tiny-moe-local"]


def test_an_unknown_ready_space_is_refused_with_the_closest() -> None:
    with pytest.raises(InvalidInput, match="did you mean table-v"):
        load_space("tablev")


def test_what_is_not_chosen_takes_its_default() -> None:
    space = SearchSpace.build(GPT_175B, FRONTIER, nodes=16, choices={"tensor_parallel": 8})
    assert tuple(space.dimensions) == DIMENSIONS
    assert space.dimensions["tensor_parallel"] == (8,)
    assert space.dimensions["num_nodes"] == (1, 2, 4, 8, 16)
    assert space.dimensions["activation_checkpointing"] == ("full",)
    assert space.dimensions["flash_attention"] == (True,)
    assert space.dimensions["precision"] == ("bf16",)
    assert space.dimensions["virtual_stages"] == (1,)


def test_every_strategy_has_the_fixed_batch() -> None:
    space = SearchSpace.build(GPT_175B, FRONTIER, nodes=16, choices={}, batch=GlobalBatch.of(640))
    lattice = space.lattice()
    assert len(lattice) > 100
    assert np.all(lattice.global_batch_size == 640)


def test_removed_rules_come_most_first() -> None:
    removed = SearchSpace.build(GPT_175B, FRONTIER, nodes=16, choices={}).enumerate().removed
    assert list(removed.values()) == sorted(removed.values(), reverse=True)
    assert 0 not in removed.values()


def test_a_space_may_have_no_legal_point_and_tells_why() -> None:
    choices = {"tensor_parallel": 5, "pipeline_parallel": 1, "gradient_accumulation_steps": 1}
    space = SearchSpace.build(GPT_175B, FRONTIER, nodes=5, choices=choices | {"num_nodes": 5})
    enumeration = space.enumerate()
    assert len(enumeration.legal) == 0
    assert enumeration.removed["heads_by_tensor"] == enumeration.raw
    with pytest.raises(InvalidInputs, match="no layout of this space is legal"):
        space.problem(seed=0)


def test_all_faults_come_at_once() -> None:
    found = faults(nodes=0, tensor_paralel=1, zero_stage=9, precision="int8", micro_batch_size=[])
    assert set(found) == {"nodes", "tensor_paralel", "zero_stage", "precision", "micro_batch_size"}
    assert "did you mean tensor_parallel?" in found["tensor_paralel"].reason
    assert found["nodes"].reason == "at least one node is needed"


def test_more_nodes_than_there_are_are_refused() -> None:
    assert faults(nodes=9857)["nodes"].reason == "frontier has 9856 nodes"
    found = faults(nodes=2, num_nodes=[1, 4])["num_nodes"]
    assert found.value == 4
    assert found.valid == "at most 2, or raise `nodes` to 4"


WIDE = {"minimum": 1, "maximum": 1000}
HUGE: dict[str, dict[str, Any]] = {
    "divisions": dict.fromkeys(("tensor_parallel", "pipeline_parallel", "num_nodes"), WIDE),
    "batches": dict.fromkeys(("micro_batch_size", "gradient_accumulation_steps"), WIDE),
    "stages": dict.fromkeys(("virtual_stages", "gradient_accumulation_steps"), WIDE),
    "points": {"virtual_stages": WIDE, "tensor_parallel": 1, "pipeline_parallel": [1, 2]},
    "everything": {d.name: WIDE for d in TABLE if d.is_counted and not d.values},
}


@pytest.mark.parametrize("kind", HUGE)
def test_a_huge_space_is_refused_before_it_is_made(kind: str) -> None:
    tracemalloc.start()
    try:
        found = faults(nodes=1000, **HUGE[kind])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert re.fullmatch(r"[0-9,]+ .* too many to enumerate; .*", found["space"].reason)
    assert any(name in found["space"].reason for name in HUGE[kind])
    assert peak < 100_000_000


@pytest.mark.parametrize(
    "choices",
    [
        {"micro_batch_size": {"minimum": 1, "maximum": 20}, "precision": ["bf16", "fp8"]},
        {"num_nodes": {"minimum": 1, "maximum": 6}, "virtual_stages": [1, 2, 3]},
    ],
)
def test_parts_of_a_space_are_enumerated_as_the_whole(choices: dict[str, Any]) -> None:
    moe, batch = load_model("mixtral-8x7b"), GlobalBatch(minimum=64, maximum=1024)
    space = SearchSpace.build(moe, H100, nodes=16, choices=choices, batch=batch)
    grid, judge = space._grid, partial(_judged, space)
    whole, parts = grid.enumerate(judge), list(grid.parts(space.program, most=2000))
    assert len(parts) > 10
    again = Enumeration.of_parts(part.enumerate(judge) for part in parts)
    for name, column in whole.legal.columns.items():
        np.testing.assert_array_equal(again.legal[name], column)
    assert again.raw == whole.raw
    assert (again.removed, again.warned) == (whole.removed, whole.warned)


def _judged(space: SearchSpace, lattice: Lattice, severity: Severity) -> dict[str, Mask]:
    judged = (space.transformer, space.machine, space.batch)
    return rule_masks(lattice, *judged, program=space.program, severity=severity)


@pytest.mark.parametrize("model", ["gpt-175b", "mixtral-8x7b", "nemotron-h-8b"])
def test_no_rule_looks_at_more_than_is_counted(model: str) -> None:
    """Two values of each dimension tell which a rule looks at."""
    counted = {d.name for d in TABLE if d.is_counted}
    two = {d.name: d.values[:2] if d.values else (2, 4) for d in TABLE}
    lattice = Grid(dimensions={**two, "precision": ("bf16", "fp8")}, gpus_per_node=8).open()
    for severity in get_args(Severity):
        masks = rule_masks(lattice, load_model(model), H100, GlobalBatch(), severity=severity)
        for rule, mask in masks.items():
            axes = {name for name, size in zip(two, mask.shape, strict=True) if size > 1}
            assert any(axes & counted <= {*names, "zero_stage"} for names in COMBINED), rule


def test_a_space_of_a_million_points_is_enumerated() -> None:
    choices: dict[str, Any] = {
        "micro_batch_size": {"minimum": 1, "maximum": 20},
        "gradient_accumulation_steps": {"minimum": 1, "maximum": 60},
    }
    space = SearchSpace.build(GPT_175B, FRONTIER, nodes=16, choices=choices)
    assert space.enumerate().raw == space.raw > 1_000_000


def sampled(seed: int, size: int) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = table_v().problem(seed).sample(size)
    return samples


def test_the_problem_samples_legal_strategies_alone() -> None:
    for parameters in sampled(seed=1, size=200):
        chosen = Strategy(**parameters)
        assert {type(value) for value in parameters.values()} <= {int, bool, str}
        assert all(f.severity == "warn" for f in findings(chosen, GPT_175B, FRONTIER))


def test_the_problem_does_not_depend_on_numpys_global_state() -> None:
    np.random.seed(1)
    first = sampled(seed=7, size=50)
    np.random.seed(2)
    assert sampled(seed=7, size=50) == first
    assert sampled(seed=8, size=50) != first


def test_a_problem_goes_on_to_other_samples() -> None:
    problem = table_v().problem(3)
    assert problem.sample(20) != problem.sample(20)


def test_the_problem_has_every_dimension_and_accepts_its_samples() -> None:
    space = table_v()
    problem = space.problem(0)
    assert set(problem.hyperparameter_names) == set(DIMENSIONS)
    assert all(problem.check_configuration(sample) for sample in problem.sample(20))


def test_samples_repeat_only_when_all_have_come() -> None:
    lattice = table_v().lattice()
    counts = Counter(tuple(s.values()) for s in LegalSampler(lattice, seed=0)(2 * len(lattice)))
    assert set(counts.values()) == {2}
    assert len(counts) == len(lattice)


def test_deephypers_search_stays_within_the_legal_strategies() -> None:
    from deephyper.hpo import CBO

    space = table_v()
    legal = set(space.lattice())
    search = CBO(
        space.problem(5),
        random_state=5,
        surrogate_model="ET",
        acq_optimizer="sampling",
        n_initial_points=3,
        checkpoint_history_to_csv=False,
        verbose=0,
    )
    for _ in range(5):
        (proposal,) = search.ask(1)
        parameters = {name: np.asarray(proposal[name]).item() for name in DIMENSIONS}
        assert Strategy(**parameters) in legal
        search.tell([(parameters, float(parameters["micro_batch_size"]))])


SEVENTY, H100 = load_model("70B"), load_machine("dgx-h100")


def automatic_space(**choices: Any) -> SearchSpace:
    return SearchSpace.build(SEVENTY, H100, nodes=4, choices=choices)


def test_an_automatic_space_searches_what_trades_time_for_memory() -> None:
    space = automatic_space(num_nodes=4, zero_stage="auto")
    assert space.dimensions["activation_checkpointing"] == ("none", "full")
    assert space.dimensions["sequence_parallel"] == (False, True)
    found = space.lattice()
    assert np.all(found["tensor_parallel"][found["sequence_parallel"]] > 1)
    # Without FlashAttention there are scores, which selective checkpointing does not keep.
    slow = automatic_space(flash_attention=[False, True])
    assert slow.dimensions["activation_checkpointing"] == ("none", "selective", "full")


def test_given_values_are_all_there_is() -> None:
    given = automatic_space(sequence_parallel=False).dimensions
    assert given["sequence_parallel"] == (False,)
    assert given["activation_checkpointing"] == ("none", "full")
    named = automatic_space(tensor_parallel=[4, 8]).dimensions
    assert (named["sequence_parallel"], named["activation_checkpointing"]) == ((False,), ("full",))


def test_a_program_gets_no_automatic_value_that_it_cannot_run() -> None:
    program = ProgramCapabilities(
        name="p",
        activation_checkpointing=("none", "full"),
        refusals=lacking("p", set(DIMENSIONS) - {"sequence_parallel"}),
    )
    space = SearchSpace.build(SEVENTY, H100, nodes=4, choices={}, program=program)
    assert space.dimensions["sequence_parallel"] == (False,)
    choices = {"sequence_parallel": "auto", "activation_checkpointing": "auto"}
    space = SearchSpace.build(SEVENTY, H100, nodes=4, choices=choices, program=program)
    assert space.dimensions["sequence_parallel"] == (False,)
    assert space.dimensions["activation_checkpointing"] == ("none", "full")


def test_a_space_without_gpus_is_not_widened() -> None:
    cpu = replace(H100, peak_tflops=None)
    dimensions = SearchSpace.build(load_model("tiny"), cpu, nodes=1, choices={}).dimensions
    assert dimensions["activation_checkpointing"] == ("full",)
    assert dimensions["sequence_parallel"] == (False,)


def test_an_automatic_space_gives_up_what_makes_it_too_large() -> None:
    """Sequence parallelism first; and it says what it gave up."""

    def whole_frontier(stages: list[int]) -> SearchSpace:
        choices: dict[str, Any] = {"precision": "auto", "virtual_stages": stages}
        return SearchSpace.build(GPT_175B, FRONTIER, nodes=FRONTIER.max_nodes, choices=choices)

    large, larger = whole_frontier([1]), whole_frontier([1, 2])
    assert large.given_up == {"sequence_parallel": (True,)}
    assert larger.given_up == {**large.given_up, "activation_checkpointing": ("none",)}
    assert len(larger.lattice()) <= MOST_AUTOMATIC_POINTS


def test_a_fixed_batch_leaves_room_for_more_dimensions() -> None:
    """Only the strategies that make the batch count, one in thirty of this grid."""
    deepseek = load_model("deepseek-v3")
    space = SearchSpace.build(deepseek, H100, nodes=64, choices={}, batch=GlobalBatch.of(8192))
    assert set(space.given_up) == {"expert_tensor_parallel"}
    assert space.raw > 10 * MOST_AUTOMATIC_POINTS
    assert len(space.dimensions["virtual_stages"]) > 1
    free = SearchSpace.build(deepseek, H100, nodes=128, choices={})
    assert list(free.given_up) == [
        "expert_tensor_parallel",
        "virtual_stages",
        "context_parallel",
        "sequence_parallel",
    ]


def test_zero_3_is_searched_with_pipelines_where_it_is_wanted() -> None:
    """It is legal without a named program, but most programs could not run what is found."""
    named = ProgramCapabilities(name="a trainer", trains=ANY_PROGRAM.trains)
    found = [
        SearchSpace.build(
            load_model("llama-3-8b"), H100, nodes=1, choices=choices, program=program
        ).lattice()
        for choices, program in (({}, ANY_PROGRAM), ({"zero_stage": [3]}, ANY_PROGRAM), ({}, named))
    ]
    together = [bool(np.any((s["zero_stage"] == 3) & (s["pipeline_parallel"] > 1))) for s in found]
    assert together == [False, True, True]
