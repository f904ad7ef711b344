from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.batch import GlobalBatch
from search_spaces.catalog import load_machine, load_model
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.program import ProgramCapabilities
from search_spaces.rules import RULES, Finding, findings, rule_masks
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.search_spaces.scene import FRONTIER, GPT_175B, strategy

LLAMA_70B = load_model("llama-2-70b")


def found(
    changed: dict[str, Any],
    *,
    transformer: Transformer = GPT_175B,
    machine: Machine = FRONTIER,
    batch: GlobalBatch = GlobalBatch(),  # noqa: B008
) -> dict[str, Finding]:
    return {f.rule: f for f in findings(strategy(**changed), transformer, machine, batch)}


def test_a_sound_strategy_breaks_no_rule() -> None:
    assert findings(strategy(), GPT_175B, FRONTIER) == []


def test_uneven_stages_are_warned_of() -> None:
    uneven = strategy(tensor_parallel=1, pipeline_parallel=5, num_nodes=5)
    (warned,) = findings(uneven, GPT_175B, FRONTIER)
    assert (warned.rule, warned.severity) == ("even_stages", "warn")
    assert "the fullest, with 20" in warned.reason
    interleaved = replace(uneven, virtual_stages=2, gradient_accumulation_steps=10)
    (warned,) = findings(interleaved, GPT_175B, FRONTIER)
    assert "the fullest, with 20" in warned.reason


@pytest.mark.parametrize(
    ("layers", "mtp", "warns"), [(94, 0, False), (93, 0, True), (61, 1, False)]
)
def test_ends_may_have_fewer_layers(layers: int, mtp: int, warns: bool) -> None:
    """In four stages: 23, 24, 24, 23, and 23, 24, 23, 23; with multi-token prediction 16, 16, 16,
    13."""
    model = replace(GPT_175B, num_layers=layers, mtp_layers=mtp)
    found_in = {f.rule for f in findings(strategy(), model, FRONTIER)}
    assert ("even_stages" in found_in) == warns


@pytest.mark.parametrize(
    ("changed", "warned"),
    [
        ({"zero_stage": 3}, []),
        ({"virtual_stages": 5, "gradient_accumulation_steps": 6}, []),
        ({"virtual_stages": 2, "pipeline_parallel": 2}, []),
        ({"virtual_stages": 2, "gradient_accumulation_steps": 6}, []),
        ({"precision": "fp16", "zero_stage": 0}, []),
        ({"sequence_parallel": True, "tensor_parallel": 1}, ["sequence_parallel_needs_tensor"]),
    ],
)
def test_what_some_program_does_is_legal(changed: dict[str, Any], warned: list[str]) -> None:
    """FSDP with pipelines in torchtitan and Automodel; unequal virtual stages, and two stages with
    them, in Megatron Core and torchtitan, which takes any number of micro-batches, too."""
    broken = found(changed)
    assert list(broken) == warned
    assert all(finding.severity == "warn" for finding in broken.values())


def test_each_virtual_stage_has_a_layer_in_every_trainer() -> None:
    none = strategy(virtual_stages=2, pipeline_parallel=1, gradient_accumulation_steps=4)
    deep = strategy(virtual_stages=25)
    one_each = findings(strategy(virtual_stages=24), GPT_175B, FRONTIER)
    assert "layers_fill_virtual_stages" not in {each.rule for each in one_each}
    (first, *_), (second, *_) = (findings(one, GPT_175B, FRONTIER) for one in (none, deep))
    assert first.reason == "virtual_stages 2 needs a pipeline, and pipeline_parallel is 1"
    assert second.reason == "96 layers cannot fill pipeline_parallel 4 x virtual_stages 25"


@pytest.mark.parametrize(
    ("rule", "changed", "numbers"),
    [
        ("machine_nodes", {"num_nodes": 9857}, "9857 nodes are more than the 9856"),
        ("world_size", {"pipeline_parallel": 3}, "4 x pipeline_parallel 3 = 12 does not divide 16"),
        ("world_size", {"pipeline_parallel": 8}, "= 32 does not divide 16 GPUs (2 nodes x 8)"),
        ("layers_fill_pipeline", {"pipeline_parallel": 97}, "96 layers cannot fill 97 stages"),
        ("heads_by_tensor", {"tensor_parallel": 5}, "96 attention heads are not divisible"),
        ("ffn_by_tensor", {"tensor_parallel": 5}, "ffn_hidden_size 49152 is not divisible"),
        (
            "virtual_stages_need_pipeline",
            {"virtual_stages": 2, "pipeline_parallel": 1},
            "virtual_stages 2 needs a pipeline",
        ),
        (
            "zero_2_without_pipeline",
            {"zero_stage": 2},
            "where they stay whole",
        ),
        ("layers_fill_virtual_stages", {"virtual_stages": 25}, "4 x virtual_stages 25"),
    ],
)
def test_refusals_name_the_numbers(rule: str, changed: dict[str, Any], numbers: str) -> None:
    finding = found(changed)[rule]
    assert finding.severity == "refuse"
    assert numbers in finding.reason


def test_query_groups_are_divided_by_tensor_parallelism() -> None:
    name = "query_groups_by_tensor"
    finding = found({"tensor_parallel": 12}, transformer=LLAMA_70B)[name]
    assert finding.reason == "8 query groups are not divisible by tensor_parallel 12"
    for dividing in (8, 16):
        assert name not in found({"tensor_parallel": dividing}, transformer=LLAMA_70B)
    whole = ProgramCapabilities(name="a trainer", repeats_query_groups=False)
    refused = findings(strategy(tensor_parallel=16), LLAMA_70B, FRONTIER, program=whole)
    (reason,) = (each.reason for each in refused if each.rule == name)
    assert reason == (
        "8 query groups are not divisible by tensor_parallel 16, and a trainer does not repeat them"
    )


def test_a_sequence_is_divided_by_tensor_parallelism() -> None:
    odd = replace(GPT_175B, seq_length=2050)
    assert "sequence_by_tensor" in found({"sequence_parallel": True}, transformer=odd)
    assert "sequence_by_tensor" not in found({}, transformer=odd)


def test_the_global_batch_is_held_to_its_bounds() -> None:
    # 1 x 8 x (16 / 16) = 8 samples
    assert found({}, batch=GlobalBatch.of(8)) == {}
    finding = found({}, batch=GlobalBatch(minimum=16))["global_batch"]
    assert "a global batch of 8 samples; allowed: 16 or more" in finding.reason
    assert "global_batch" in found({}, batch=GlobalBatch(maximum=7))


def test_the_batch_of_an_impossible_world_is_not_judged() -> None:
    broken = found({"pipeline_parallel": 3}, batch=GlobalBatch.of(640))
    assert "world_size" in broken
    assert "global_batch" not in broken


def test_bf16_is_refused_where_there_is_none() -> None:
    summit = load_machine("summit")
    assert "has no bf16" in found({}, machine=summit)["precision"].reason
    assert "precision" not in found({"precision": "fp16"}, machine=summit)


@pytest.mark.parametrize(
    ("rule", "changed", "numbers"),
    [
        ("tensor_within_node", {"tensor_parallel": 16, "pipeline_parallel": 1}, "spans nodes of 8"),
        ("accumulation_fills_pipeline", {"gradient_accumulation_steps": 3}, "stages idle"),
        (
            "sequence_parallel_needs_tensor",
            {"sequence_parallel": True, "tensor_parallel": 1},
            "has no effect",
        ),
    ],
)
def test_warnings_leave_a_strategy_legal(rule: str, changed: dict[str, Any], numbers: str) -> None:
    warned = found(changed)
    assert list(warned) == [rule]
    assert warned[rule].severity == "warn"
    assert numbers in warned[rule].reason


def test_a_vocabulary_that_has_to_be_padded_is_a_warning() -> None:
    odd = replace(GPT_175B, vocab_size=50257)
    assert "50257" in found({}, transformer=odd)["vocabulary_by_tensor"].reason


def test_a_group_that_straddles_nodes_is_a_warning() -> None:
    summit = load_machine("summit")
    straddling = {"tensor_parallel": 4, "pipeline_parallel": 1, "precision": "fp16"}
    assert "tensor_within_node" in found(straddling, machine=summit)
    racks = load_machine("gb200-nvl72")  # nodes of 4 GPUs, racks of 72
    within = {"tensor_parallel": 8, "pipeline_parallel": 1}
    assert "tensor_within_node" not in found(within, machine=racks)


def test_refusals_come_before_warnings() -> None:
    broken = found({"num_nodes": 9857, "gradient_accumulation_steps": 1, "pipeline_parallel": 32})
    assert [f.severity for f in broken.values()] == ["refuse", "refuse", "warn"]


def test_every_rule_says_what_it_demands() -> None:
    assert all(rule.demand for rule in RULES.values())


strategies = st.builds(
    Strategy,
    tensor_parallel=st.integers(1, 20),
    pipeline_parallel=st.integers(1, 20),
    micro_batch_size=st.integers(1, 8),
    gradient_accumulation_steps=st.integers(1, 40),
    zero_stage=st.integers(0, 3),
    num_nodes=st.integers(1, 20),
    activation_checkpointing=st.sampled_from(["none", "selective", "full"]),
    sequence_parallel=st.booleans(),
    flash_attention=st.booleans(),
    virtual_stages=st.integers(1, 4),
    precision=st.sampled_from(["fp32", "bf16", "fp16"]),
)


def legal_by_hand(s: Strategy, model: Transformer, batch: GlobalBatch) -> bool:
    """The rules once more, in plain Python, for Frontier."""
    world = s.num_nodes * 8
    if world % (s.tensor_parallel * s.pipeline_parallel):
        return False
    replicas = world // (s.tensor_parallel * s.pipeline_parallel)
    samples = s.micro_batch_size * s.gradient_accumulation_steps * replicas
    interleaved = s.virtual_stages > 1
    widths = (model.num_attention_heads, model.num_query_groups, model.ffn_hidden_size)
    return (
        all(width % s.tensor_parallel == 0 for width in widths)
        and s.pipeline_parallel * s.virtual_stages <= model.num_layers
        and (s.zero_stage != 2 or s.pipeline_parallel == 1)
        and (batch.minimum or 0) <= samples <= (batch.maximum or 10**9)
        and (not interleaved or s.pipeline_parallel > 1)
        and (not s.sequence_parallel or model.seq_length % s.tensor_parallel == 0)
    )


@given(
    chosen=st.lists(strategies, min_size=1, max_size=20),
    model=st.sampled_from([GPT_175B, LLAMA_70B]),
    batch=st.sampled_from([GlobalBatch(), GlobalBatch.of(640), GlobalBatch(minimum=8, maximum=99)]),
)
def test_a_lattice_is_judged_as_each_of_its_strategies(
    chosen: list[Strategy], model: Transformer, batch: GlobalBatch
) -> None:
    lattice = Lattice.of(chosen, gpus_per_node=8)
    refused = rule_masks(lattice, model, FRONTIER, batch)
    warned = rule_masks(lattice, model, FRONTIER, batch, severity="warn")
    assert set(refused) | set(warned) == set(RULES)
    legal = ~np.logical_or.reduce(list(refused.values()))
    for row, one in enumerate(chosen):
        assert legal[row] == legal_by_hand(one, model, batch)
        masks = refused | warned
        broken = {name for name, mask in masks.items() if mask[row]}
        assert {f.rule for f in findings(one, model, FRONTIER, batch)} == broken
