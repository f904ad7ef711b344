"""Memory of layers of several kinds, by hand: experts, latent attention, multi-token prediction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.calibration.quantity import Quantity
from autotune.cost_model import Parameters, activations, states
from autotune.cost_model.activations import logits_memory
from autotune.cost_model.memory import memory_parts, micro_batches_in_flight
from autotune.cost_model.strategies import Strategies, total
from search_spaces.catalog import load_model
from search_spaces.program import StateWidths
from tests.autotune.cost_model.examples import (
    DGX_H100,
    columns,
    paper_bytes,
    strategies_of,
    strategy,
)

DEEPSEEK = load_model("deepseek-v3")
QWEN = load_model("qwen3-30b-a3b")
CONSTANTS = replace(paper_bytes(DGX_H100), routing_imbalance=1.25, fragmentation=0.0)
LAYOUT = strategy(
    tensor_parallel=2,
    pipeline_parallel=4,
    expert_parallel=8,
    num_nodes=16,
    micro_batch_size=1,
    sequence_parallel=True,
    activation_checkpointing="none",
    precision="bf16",
)


def of(
    model: str = "deepseek-v3", *, parameters: Parameters = CONSTANTS, **changes: object
) -> Strategies:
    """The layout of 128 GPUs, with columns or dimensions changed."""
    dimensions = {name: changes.pop(name) for name in list(changes) if name in LAYOUT.dimensions}
    return strategies_of(
        replace(LAYOUT, **dimensions),  # type: ignore[arg-type]
        transformer=load_model(model),
        machine=DGX_H100,
        parameters=parameters,
        **changes,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("recomputed", "all_tokens", "routed"),
    [
        ((), 1.0, 1.0),
        (("layernorm",), 1.0 - 2 * 2048 * 2 / 64512, 1.0),
        (("moe_act",), 1.0, 1.0 - 2 * 768 / (2 * 2048 + 6 * 768 + 4)),
        (("moe",), 1.0 - 9 * 128 / 64512, 0.0),
    ],
)
def test_what_a_layer_with_experts_keeps(
    recomputed: tuple[str, ...], all_tokens: float, routed: float
) -> None:
    """Of Qwen3-30B: two norms' inputs and results and the router's 9 bytes for each expert over
    the sequence's halves, half of query, keys, values and result; of 8 experts a token, 1.25 times
    an even share of them, input, three inner states of 768, and 4 bytes."""
    own = 4096 / 2
    attention = 2 * (2 * 4096 + 2 * 512)
    common = own * (2 * 4 * 2048 + 9 * 128 + attention)
    again: dict[str, object] = {f"recompute_{name}": 1.0 for name in recomputed}
    one = of("qwen3-30b-a3b", parameters=CONSTANTS, **again)
    activation_bytes = activations.ActivationBytes.of(one)
    assert activation_bytes.expert is not None
    assert activation_bytes.routed is not None
    shrunk = common - own * 64512 * (1.0 - all_tokens)
    assert activation_bytes.expert[0] == pytest.approx(shrunk)
    assert activation_bytes.routed[0] == pytest.approx(
        own * 8 * 1.25 * (2 * 2048 + 6 * 768 + 4) * routed, rel=1e-9
    )
    assert (activation_bytes.passing[0] > 0) == bool(recomputed)


def test_the_clamped_copy_is_stored_unless_recomputed() -> None:
    """Two more inner states of 768 of each routed token."""
    for recomputed, more in [(0.0, 2 * 2 * 768), (1.0, 0.0)]:
        plain, biased = (
            activations.ActivationBytes.of(
                of("qwen3-30b-a3b", recompute_moe_act=recomputed, expert_biases=flag)
            ).routed
            for flag in (0.0, 1.0)
        )
        assert plain is not None
        assert biased is not None
        assert biased[0] - plain[0] == pytest.approx(4096 / 2 * 8 * 1.25 * more)


@pytest.mark.parametrize(("recomputed", "more"), [(0.0, 4.0), (1.0, 0.0)])
def test_experts_keep_more_without_a_fused_activation(recomputed: float, more: float) -> None:
    """Megatron Core's own operations keep 10 bytes for each of 768, its fused kernel 6."""
    fused, unfused = (
        activations.ActivationBytes.of(
            of(
                "qwen3-30b-a3b",
                parameters=replace(CONSTANTS, gated_activation_bytes=size),
                recompute_moe_act=recomputed,
            )
        ).routed
        for size in (6.0, 10.0)
    )
    assert fused is not None
    assert unfused is not None
    assert unfused[0] - fused[0] == pytest.approx(4096 / 2 * 8 * 1.25 * more * 768)


def test_a_strategy_sets_recomputation_and_width_of_products() -> None:
    """Sets and precisions reach the formulas by the strategy alone."""
    totals = [
        float(total(memory_parts(of("qwen3-30b-a3b", activation_checkpointing=recomputed)))[0])
        for recomputed in ("none", "moe_act", "layernorm+moe_act", "full")
    ]
    assert np.all(np.diff(totals) < 0)
    narrow = memory_parts(of("qwen3-30b-a3b", precision="mxfp8"))
    wide = memory_parts(of("qwen3-30b-a3b"))
    assert narrow["routed_tokens"][0] < wide["routed_tokens"][0]
    assert narrow["parameters"][0] == wide["parameters"][0]


def test_latent_attention_keeps_compressed_and_expanded_states() -> None:
    """Ranks of 1536 and 512 and their norms over the sequence's halves; 128 heads with keys of 192
    and values of 128 over TP. Recomputing the up-projection leaves the result alone."""
    own, tokens = 4096 / 2, 4096
    compressed = own * (2 * (1536 + 512) + 64)
    expanded = tokens / 2 * 128 * (2 * 192 + 128)
    result = tokens / 2 * 128 * 128
    elements = activations.attention_elements(of())
    assert elements[0] == pytest.approx(compressed + expanded + result)
    assert activations.attention_elements(of(recompute_mla_up_proj=1.0))[0] == result


def test_states_of_experts_and_of_the_rest() -> None:
    """61 layers on four stages: the first has three dense ones of 16. TP cuts matrices, but neither
    norms, down-projections nor the router; EP 8 cuts the experts, whose states ZeRO divides over
    128 / (8 x 4) GPUs, not over the 16 of the rest."""
    one = of()
    h, heads = 7168, 128
    down = h * (1536 + 512 + 64) + 1536 + 512
    up = 1536 * heads * 192 + 512 * heads * 256 + h * heads * 128
    every = down + up / 2 + 2 * h
    unrouted = 3 * h * 2048 / 2 + 256 * h
    dense = 3 * h * 18432 / 2
    embedding = 129280 * h / 2
    first = 16 * every + 3 * dense + 13 * unrouted + embedding
    assert states.stage_parameters(one, first=True, last=False)[0] == pytest.approx(first)
    routed = 13 * 3 * h * 2048 * 256 / 8
    assert states.stage_routed_parameters(one, first=True, last=False)[0] == routed
    assert one.expert_shards[0] == 128 / (8 * 4)
    assert one.zero_shards[0] == 16
    experts = states.state_bytes(one, shards=one.expert_shards).total
    gradient = float(CONSTANTS.gradient_bytes)
    assert experts[0] == pytest.approx(2 + gradient + 12 / 4)


def test_the_last_stage_predicts_more_tokens() -> None:
    """13 layers in place of 15, the predicting one with experts, its projection and norms, and a
    copy of the embedding; 4 bytes more for each token and vocabulary entry."""
    one, without = of(), of(mtp_layers=0.0)
    h = 7168
    layer = sum(map(float, _layer_parameters(one)))
    own = 2 * h * h / 2 + 3 * h + layer + 129280 * h / 2
    more = states.stage_parameters(one, first=False, last=True)[0]
    less = states.stage_parameters(without, first=False, last=True)[0]
    assert more - less == pytest.approx(own - 2 * layer)
    entries = 4096 * 129280 / 2
    assert (logits_memory(one) - logits_memory(without))[0] == pytest.approx(4 * entries)


def _layer_parameters(one: Strategies) -> tuple[float, ...]:
    return (
        states.mixer_parameters(one)[0],
        states.vector_parameters(one)[0],
        states.unrouted_parameters(one)[0],
    )


def test_the_second_stage_is_fullest_after_dense_first_layers() -> None:
    """With few tokens in flight the experts' states decide, and the second has three layers of
    experts more."""
    one = of(gradient_accumulation_steps=1, micro_batch_size=1, mtp_layers=0.0, seq_length=128.0)
    parts = memory_parts(one)
    _, experts = states.stage_layers(one, first=False, last=False)
    expected = states.state_bytes(one, shards=one.expert_shards).total[0] * (
        float(experts[0]) * states.routed_parameters(one)[0]
    )
    assert experts[0] == 16
    assert parts["experts"][0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("first", "last", "stages", "expected"),
    [
        (True, False, 1, 4),
        (False, False, 1, 3),
        (False, True, 1, 1),
        (True, False, 2, (6 + 4 + 1) / 2),
        (False, True, 2, (4 + 1) / 2),
    ],
)
def test_micro_batches_in_flight_of_each_stage(
    first: bool, last: bool, stages: int, expected: float
) -> None:
    one = of(virtual_stages=stages)
    assert micro_batches_in_flight(one, first=first, last=last)[0] == expected


def test_more_experts_per_gpu_and_imbalance_need_more_memory() -> None:
    parts = [memory_parts(of(expert_parallel=ep)) for ep in (4, 8, 16)]
    assert np.all(np.diff([float(total(each)[0]) for each in parts]) < 0)
    even = memory_parts(of(parameters=replace(CONSTANTS, routing_imbalance=1.0)))
    routed = (parts[1]["routed_tokens"] / even["routed_tokens"])[0]
    assert routed == pytest.approx(1.25)
    assert parts[1]["activations"][0] == even["activations"][0]


def test_a_dense_model_has_no_part_for_experts() -> None:
    assert not {"experts", "routed_tokens"} & memory_parts(strategies_of(strategy())).keys()


def test_the_program_declares_what_it_keeps_of_a_parameter() -> None:
    """DeepSeek-V3's own types (arXiv 2412.19437, section 3.3): 16-bit gradients and moments."""
    widths = StateWidths(gradient_bytes=2.0, moment_bytes=2.0)
    declared = Parameters.default(DGX_H100, states=widths)
    for stage in (0, 1):
        one = of(parameters=declared, zero_stage=stage)
        shards = float(one.zero_shards[0]) if stage else 1.0
        assert states.state_bytes(one).total[0] == pytest.approx(2 + 2 + (4 + 2 * 2) / shards)
    eight = Parameters.default(DGX_H100, states=StateWidths(fp8_weight_bytes=1.0))
    size = states.state_bytes(of(parameters=eight, fp8=1.0)).parameters[0]
    assert size == pytest.approx(1 + 4 / 16)


def test_trials_do_not_decide_what_the_program_declares() -> None:
    unknown = Quantity(machine=DGX_H100, prior=Parameters.default(DGX_H100), of_memory=True)
    declared = replace(unknown, declared=frozenset({"gradient_bytes"}))
    assert len(unknown.hypotheses) == 2
    assert len(declared.hypotheses) == 1
    assert set(unknown.names) - set(declared.names) == {"gradient_bytes"}


def test_models_side_by_side_cost_what_each_costs_alone() -> None:
    """A dense model, one with experts and a hybrid in one stack of columns."""
    names = ("llama-3-8b", "qwen3-30b-a3b", "nemotron-3-nano-30b-a3b", "deepseek-v3")
    alone = [columns(LAYOUT, transformer=load_model(n), machine=DGX_H100) for n in names]
    each = [total(memory_parts(Strategies(c, DGX_H100, CONSTANTS)))[0] for c in alone]
    together = memory_parts(Strategies(type(alone[0]).stack(alone), DGX_H100, CONSTANTS))
    assert total(together) == pytest.approx(each)
