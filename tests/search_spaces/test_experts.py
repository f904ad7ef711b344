"""Models with experts: the dimensions that only they have, and what is legal there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from search_spaces.batch import GlobalBatch
from search_spaces.catalog import load_machine, load_model
from search_spaces.dimensions import DIMENSIONS, OF_EXPERTS
from search_spaces.groups import ParallelGroups
from search_spaces.layers import Experts
from search_spaces.machine import Machine
from search_spaces.program import (
    ANY_PROGRAM,
    OwnDimension,
    ProgramCapabilities,
    lacking,
    undeclared,
)
from search_spaces.rules import findings, rule_masks
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from search_spaces.transformer import RECOMPUTED_SETS, Transformer
from tests.search_spaces.scene import FRONTIER, GPT_175B, strategy

H100 = load_machine("dgx-h100")
RACKS = load_machine("gb200-nvl72")
EXPERTS = Experts(num_experts=48, top_k=8, ffn_hidden_size=768)
MOE = replace(load_model("llama-3-8b"), name="a mixture", experts=EXPERTS)
WITHOUT_EP = ProgramCapabilities(
    name="a trainer",
    refusals=lacking("a trainer", set(DIMENSIONS) - {"expert_parallel"}),
    trains=("experts",),
)

OF_MEGATRON_CORE = replace(ANY_PROGRAM, name="Megatron", experts_need_sequence_parallel=True)


HYBRID = load_model("nemotron-h-8b")


def with_dense_layers(model: Transformer) -> Transformer:
    return replace(model, experts=replace(EXPERTS, dense_layers=1))


def with_shared(model: Transformer, width: int) -> Transformer:
    return replace(model, experts=replace(EXPERTS, shared_ffn_hidden_size=width))


def layout(**changes: Any) -> Strategy:
    sound: dict[str, Any] = {"tensor_parallel": 2, "pipeline_parallel": 1, "num_nodes": 2}
    return strategy(**sound | changes)


def test_experts_divide_the_replicas_and_not_the_world() -> None:
    """Table 3 of arXiv 2504.14960: TP 2, CP 2, PP 2 on 64 GPUs, with ETP 1 and EP 8."""
    groups = ParallelGroups(
        tensor_parallel=2,
        context_parallel=2,
        pipeline_parallel=2,
        expert_parallel=8,
        expert_tensor_parallel=1,
        world_size=64,
    )
    assert (groups.model_parallel, groups.data_parallel, groups.left_over) == (8, 8, 0)
    assert (groups.expert_model_parallel, groups.expert_data_parallel) == (16, 4)
    assert (groups.dense_shards, groups.expert_shards) == (16, 4)


@pytest.mark.parametrize(
    ("changes", "program", "rule", "words"),
    [
        ({"expert_parallel": 16}, ANY_PROGRAM, None, ""),
        ({"expert_parallel": 8, "expert_tensor_parallel": 2}, ANY_PROGRAM, None, ""),
        (
            {"expert_parallel": 5, "num_nodes": 5},
            ANY_PROGRAM,
            "experts_by_expert_parallel",
            "48 experts are not divisible by expert_parallel 5",
        ),
        (
            {"expert_parallel": 16, "expert_tensor_parallel": 2},
            ANY_PROGRAM,
            "expert_world_size",
            "expert_tensor_parallel 2 x expert_parallel 16 x pipeline_parallel 1 = 32 does not "
            "divide 16 GPUs",
        ),
        (
            {"expert_tensor_parallel": 5, "num_nodes": 10},
            ANY_PROGRAM,
            "expert_width_by_expert_tensor",
            "experts of width 768 are not divisible by expert_tensor_parallel 5",
        ),
        (
            {},
            WITHOUT_EP,
            "experts_split_as_layers",
            "a trainer splits experts like all other weights: expert_tensor_parallel must be "
            "tensor_parallel 2 (here 1)",
        ),
        ({"expert_tensor_parallel": 2}, WITHOUT_EP, None, ""),
        (
            {},
            OF_MEGATRON_CORE,
            "experts_by_sequence_parallel",
            "experts with tensor_parallel 2 need sequence_parallel on",
        ),
        ({"sequence_parallel": True}, OF_MEGATRON_CORE, None, ""),
        ({"tensor_parallel": 1}, OF_MEGATRON_CORE, None, ""),
        (
            {"expert_parallel": 2, "expert_tensor_parallel": 2},
            WITHOUT_EP,
            "program",
            "a trainer has no expert parallelism: expert_parallel must be 1",
        ),
    ],
)
def test_what_is_legal(
    changes: dict[str, int], program: ProgramCapabilities, rule: str | None, words: str
) -> None:
    """Megatron-LM's `validate_args` and `parallel_state.initialize_model_parallel`."""
    found = [
        f for f in findings(layout(**changes), MOE, H100, program=program) if f.severity == "refuse"
    ]
    assert [f.rule for f in found] == ([rule] if rule else [])
    assert words in "".join(f.reason for f in found)


@pytest.mark.parametrize(
    ("model", "tensor_parallel", "rule", "words"),
    [
        (replace(MOE, ffn_hidden_size=14337), 8, None, ""),  # no layer has that width
        (
            with_dense_layers(replace(MOE, ffn_hidden_size=14337)),
            8,
            "ffn_by_tensor",
            "ffn_hidden_size 14337 is not divisible by tensor_parallel 8",
        ),
        (
            with_shared(MOE, 1020),
            8,
            "ffn_by_tensor",
            "shared_ffn_hidden_size 1020 is not divisible by tensor_parallel 8",
        ),
        (with_shared(MOE, 1020), 4, None, ""),
        (HYBRID, 8, None, ""),
        (
            HYBRID,
            16,
            "mamba_groups_by_tensor",
            "8 groups of a Mamba block are not divisible by tensor_parallel 16",
        ),
    ],
)
def test_tensor_parallelism_cuts_what_the_layers_have(
    model: Transformer, tensor_parallel: int, rule: str | None, words: str
) -> None:
    """Megatron Core's `mamba_mixer.py` asserts that `ngroups % tp_size == 0`."""
    one = layout(tensor_parallel=tensor_parallel)
    found = [f for f in findings(one, model, H100) if f.severity == "refuse"]
    assert [f.rule for f in found if f.rule != "query_groups_by_tensor"] == ([rule] if rule else [])
    assert words in "".join(f.reason for f in found)


@pytest.mark.parametrize(
    ("tensor_parallel", "context_parallel", "legal"),
    [(1, 4, True), (8, 16, True), (1, 16, True), (2, 3, False), (8, 32, False), (1, 128, True)],
)
def test_cp_deals_out_whole_heads_of_a_mamba_block(
    tensor_parallel: int, context_parallel: int, legal: bool
) -> None:
    """Megatron Core's `mamba_context_parallel.py` on 128 heads in 8 groups."""
    one = layout(tensor_parallel=tensor_parallel, context_parallel=context_parallel)
    broken = [f for f in findings(one, HYBRID, H100) if f.rule == "mamba_heads_by_context"]
    assert not broken if legal else "128 heads and 8 groups" in broken[0].reason


@pytest.mark.parametrize(
    ("tensor_parallel", "context_parallel", "legal"),
    [(2, 1, True), (2, 8, True), (4, 8, False), (1, 32, False)],
)
def test_each_rank_has_whole_heads_of_linear_attention(
    tensor_parallel: int, context_parallel: int, legal: bool
) -> None:
    """16 heads of keys and 48 of values."""
    one = layout(tensor_parallel=tensor_parallel, context_parallel=context_parallel)
    qwen = load_model("qwen3.5-27b")
    broken = [f for f in findings(one, qwen, H100) if f.rule == "linear_heads"]
    assert not broken if legal else "16 and 48 heads" in broken[0].reason


def test_a_model_without_experts_has_no_layout_of_them() -> None:
    (found,) = findings(strategy(expert_parallel=2), GPT_175B, FRONTIER)
    assert found.rule == "experts_wanted"
    assert "gpt-175b has no experts, so expert_parallel" in found.reason
    own = (OwnDimension(name="expert_parallel", values=(1, 2)),)
    of_its_own = ProgramCapabilities(name="a trainer of before", own=own)
    assert findings(strategy(expert_parallel=2), GPT_175B, FRONTIER, program=of_its_own) == []


@pytest.mark.parametrize(
    ("model", "program", "expert_parallel", "expert_tensor_parallel"),
    [
        (MOE, ANY_PROGRAM, (1, 2, 3, 4, 6, 8, 12, 16), (1, 2, 4, 8)),
        (MOE, WITHOUT_EP, (1,), (1, 2, 4, 8)),
        (load_model("llama-3-8b"), ANY_PROGRAM, (1,), (1,)),
    ],
)
def test_automatic_values_are_those_of_the_experts(
    model: Transformer,
    program: ProgramCapabilities,
    expert_parallel: tuple[int, ...],
    expert_tensor_parallel: tuple[int, ...],
) -> None:
    choices = dict.fromkeys(OF_EXPERTS, "auto")
    space = SearchSpace.build(model, H100, nodes=2, choices=choices, program=program)
    assert space.dimensions["expert_parallel"] == expert_parallel
    assert space.dimensions["expert_tensor_parallel"] == expert_tensor_parallel
    of_experts = set(space.beyond_all) - set(space.settings)
    assert of_experts == (set(OF_EXPERTS) if model.experts else set())


def test_a_grid_is_judged_as_each_of_its_points() -> None:
    """Nothing is lost by judging the values of dimensions, and not rows."""
    refusals = undeclared("a trainer", {}) + lacking("a trainer", set(DIMENSIONS) - {"zero_stage"})
    program = replace(WITHOUT_EP, refusals=refusals)
    choices: dict[str, Any] = {
        "tensor_parallel": [1, 2, 3, 4],
        "pipeline_parallel": [1, 2, 5],
        "micro_batch_size": [1, 2],
        "gradient_accumulation_steps": [1, 4],
        "zero_stage": [0, 1, 2],
        "num_nodes": [1, 2],
        "sequence_parallel": [False, True],
        "precision": ["bf16", "mxfp8"],
        "context_parallel": [1, 2],
        "expert_parallel": [1, 4, 5, 16],
        "expert_tensor_parallel": [1, 2, 4],
    }
    batch = GlobalBatch(minimum=4, maximum=64)
    space = SearchSpace.build(MOE, H100, nodes=2, choices=choices, batch=batch, program=program)
    whole = space.grid()
    masks = rule_masks(whole, MOE, H100, batch, program=program)
    found = space.enumerate()
    assert found.raw == len(whole) == space.raw
    assert found.removed == {
        name: count for name, mask in masks.items() if (count := int(np.count_nonzero(mask)))
    }
    twice = whole["sequence_parallel"] & (whole["tensor_parallel"] == 1)
    legal = whole.take(~np.logical_or.reduce([twice, *masks.values()]))
    assert len(legal) > 20
    for name in DIMENSIONS:
        assert np.array_equal(found.legal[name], legal[name])
    warned = rule_masks(legal, MOE, H100, batch, program=program, severity="warn")
    assert found.warned == {
        name: count for name, mask in warned.items() if (count := int(np.count_nonzero(mask)))
    }
    assert sum(space.refused_by_program().values()) >= found.removed["program"] > 0


@pytest.mark.parametrize(
    ("machine", "nodes", "changes", "words"),
    [
        (H100, 2, {"expert_parallel": 8}, None),
        (
            H100,
            2,
            {"expert_parallel": 8, "expert_tensor_parallel": 2},
            "expert_parallel 8 spreads the experts over 16 GPUs, across nodes of 8 GPUs",
        ),
        (RACKS, 16, {"expert_parallel": 64}, None),
        (RACKS, 24, {"expert_parallel": 96}, "over 96 GPUs, across racks of 72 GPUs"),
    ],
)
def test_experts_beyond_the_fast_links_are_warned_of(
    machine: Machine, nodes: int, changes: dict[str, int], words: str | None
) -> None:
    one = layout(**{"num_nodes": nodes, **changes})
    model = replace(MOE, experts=Experts(num_experts=192, top_k=8, ffn_hidden_size=768))
    reasons = [f.reason for f in findings(one, model, machine) if f.rule == "experts_within_node"]
    assert len(reasons) == (0 if words is None else 1)
    assert (words or "") in "".join(reasons)
    dense = replace(MOE, experts=None)
    assert "experts_within_node" not in [f.rule for f in findings(one, dense, machine)]


def test_a_large_space_keeps_tp_and_unrecomputed_layers() -> None:
    """Sequence parallelism follows tensor parallelism where the program ties them, so that it takes
    no room; parts of layers are given up before `none`, and only where the batch is free."""
    deepseek = load_model("deepseek-v3")
    sets = (("activation_checkpointing", RECOMPUTED_SETS),)
    program = replace(OF_MEGATRON_CORE, special=sets)
    batch = GlobalBatch.of(1024)
    fixed = SearchSpace.build(deepseek, H100, nodes=64, choices={}, batch=batch, program=program)
    assert "activation_checkpointing" not in fixed.given_up
    space = SearchSpace.build(deepseek, H100, nodes=64, choices={}, program=program)
    lattice = space.lattice()
    assert set(lattice["tensor_parallel"].tolist()) == {1, 2, 4, 8}
    assert np.array_equal(lattice["sequence_parallel"], lattice["tensor_parallel"] > 1)
    recomputed = set(lattice["activation_checkpointing"].tolist())
    assert {"none", "full"} <= recomputed
    assert not recomputed & set(RECOMPUTED_SETS)


def test_automatic_splits_of_experts_are_none_or_as_the_layers() -> None:
    space = SearchSpace.build(MOE, H100, nodes=2, choices={})
    lattice = space.lattice()
    split, tensor = lattice["expert_tensor_parallel"], lattice["tensor_parallel"]
    assert set(split.tolist()) == {1, 2, 4, 8}
    assert np.all((split == 1) | (split == tensor))


def test_a_trainer_without_etp_splits_experts_as_its_layers() -> None:
    space = SearchSpace.build(MOE, H100, nodes=1, choices={}, program=WITHOUT_EP)
    lattice = space.lattice()
    assert len(lattice)
    assert np.array_equal(lattice["expert_tensor_parallel"], lattice["tensor_parallel"])
