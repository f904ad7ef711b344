"""Layers with experts, latent attention, windows and Mamba-2 blocks: each term against its formula
by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotune.cost_model import Parameters, communication, compute
from autotune.cost_model.layers import mean_block
from autotune.cost_model.step_time import MicroBatch, layer_parts, time_parts
from autotune.cost_model.strategies import Strategies, total
from search_spaces.catalog import load_machine, load_model
from search_spaces.transformer import Transformer
from tests.autotune.cost_model.examples import (
    DGX_H100,
    LLAMA,
    strategies_of,
    strategy,
    without_limit,
    without_losses,
)

RACK = load_machine("gb200-nvl72")
NO_TRAFFIC = without_limit(DGX_H100, "memory_bandwidth_gb_per_s")
PEAK = 989e12
IDEAL: dict[str, Any] = {"expert_load": 1.0, "grouped_gemm": 1.0, "exposed_all_to_all": 1.0}
QWEN = load_model("qwen3-30b-a3b")
DEEPSEEK = load_model("deepseek-v3")
ONE_STAGE = strategy(
    tensor_parallel=1, pipeline_parallel=1, micro_batch_size=2, activation_checkpointing="none"
)


def ideal(transformer: Transformer, *, layout: Any = ONE_STAGE, **changes: float) -> Strategies:
    """One strategy on H100s that lose nothing and wait for no memory."""
    parameters = replace(without_losses(NO_TRAFFIC), **IDEAL)
    return strategies_of(
        layout, transformer=transformer, machine=NO_TRAFFIC, parameters=parameters, **changes
    )


def on_racks(ep: float, fast_domain: int | None, **changes: float) -> Strategies:
    """Qwen3-30B with so many ranks of experts, on nodes of 4 that share links within a domain."""
    machine = replace(RACK, fast_domain=fast_domain)
    parameters = replace(Parameters.default(machine), **IDEAL, all_to_all_efficiency=1.0)
    parameters = replace(parameters, collective_latency_s=0.0)
    return strategies_of(
        ONE_STAGE,
        transformer=QWEN,
        machine=machine,
        parameters=parameters,
        expert_parallel=ep,
        **changes,
    )


@pytest.mark.parametrize(
    "name",
    [
        *("qwen3-30b-a3b", "deepseek-v3", "gpt-oss-120b", "nemotron-3-nano-30b-a3b"),
        *("qwen3.5-27b", "kimi-linear-48b-a3b", "granite-4.0-h-small", "falcon-h1-34b"),
        "llama-4-maverick",
    ],
)
def test_products_of_all_kinds_of_layers_match_the_models_count(name: str) -> None:
    model = load_model(name)
    one = ideal(model)
    weights = sum(
        kind.count
        * (
            kind.attention_parameters
            + kind.recurrent_parameters
            + kind.mlp_parameters
            + kind.active_expert_parameters
        )
        for kind in model.kinds
    )
    parts = layer_parts(one)
    seconds = parts["matrix_multiplication"] + parts.get("experts", 0.0)
    expected = 3.0 * 2.0 * weights * 2 * model.seq_length / PEAK
    assert model.num_layers * float(seconds[0]) == pytest.approx(expected, rel=0.05)


def test_a_rank_of_fewer_experts_does_as_much_work() -> None:
    alone, apart = (layer_parts(ideal(QWEN, expert_parallel=ep)) for ep in (1.0, 8.0))
    assert float(apart["experts"][0]) == pytest.approx(float(alone["experts"][0]), rel=1e-6)
    assert float(alone["all_to_all"][0]) == 0.0
    assert float(apart["all_to_all"][0]) > 0.0


def test_few_tokens_of_an_expert_make_its_products_slow() -> None:
    """As every other short side of a product: a tile is computed whole."""
    parameters = replace(Parameters.default(DGX_H100), host_floor_s=0.0)
    tokens = {
        size: strategies_of(
            replace(ONE_STAGE, micro_batch_size=size),
            transformer=replace(QWEN, seq_length=256),
            machine=DGX_H100,
            parameters=parameters,
        )
        for size in (1, 16)
    }
    few, many = (float(layer_parts(tokens[size])["experts"][0]) / size for size in (1, 16))
    assert few > 2.0 * many


@pytest.mark.parametrize(
    ("fast_domain", "inside", "outside"),
    [(72, 31 / 32, 0.0), (None, 3 / 32, 7 * (1 - (7 / 8) ** 8) / 8)],
)
def test_tokens_use_a_racks_fast_links_and_else_the_network(
    fast_domain: int | None, inside: float, outside: float
) -> None:
    """32 ranks in one rack, or on 8 nodes, to each of which a token is sent once."""
    hidden = 2.0 * 2 * QWEN.seq_length * QWEN.hidden_size
    both_ways = 2.0 * max(8 * inside * hidden / 900e9, 8 * outside * hidden / 50e9)
    one = on_racks(32.0, fast_domain)
    assert communication.all_to_all_time_s(one)[0] == pytest.approx(both_ways)


def test_an_overlapped_all_to_all_is_exposed_in_part() -> None:
    plain, overlapped = (
        communication.all_to_all_time_s(on_racks(32.0, 72, overlapped_all_to_all=flag))
        for flag in (0.0, 1.0)
    )
    assert float(overlapped[0]) == pytest.approx(communication.OVERLAPPED * float(plain[0]))


def test_the_gpu_idles_while_the_host_waits_for_token_counts() -> None:
    """In forward passes, one in three or two in four, the shorter of both times comes on top."""
    one, whole = (ideal(QWEN, waits_for_counts=0.5, full_checkpointing=full) for full in (0.0, 1.0))
    busy, host = np.array([12e-3, 2e-3]), np.array([6e-3, 8e-3])
    waited = compute.waiting_time_s(one, busy=busy, host=host)
    assert waited.tolist() == pytest.approx([1e-3, 2e-3 / 6])
    waited = compute.waiting_time_s(whole, busy=busy, host=host)
    assert waited.tolist() == pytest.approx([1.5e-3, 0.5e-3])
    all_to_all, other = (
        float(layer_parts(on_racks(8.0, 72, waits_for_counts=waits))["host"][0])
        for waits in (1.0, 0.0)
    )
    assert all_to_all > other


@pytest.mark.parametrize(("uneven", "load"), [(0.0, 1.0), (1.0, 1.1), (2.0, 1.2)])
def test_balanced_routing_loads_all_experts_alike(uneven: float, load: float) -> None:
    one = on_racks(32.0, 72, uneven_routing=uneven)
    loaded = Strategies(one.columns, one.machine, replace(one.parameters, expert_load=1.1))
    alone = communication.all_to_all_time_s(one)[0]
    assert communication.all_to_all_time_s(loaded)[0] == pytest.approx(load * alone)


def test_gradients_of_experts_are_reduced_over_their_own_copies() -> None:
    """16 GPUs, EP 8: two copies of each expert, 8 ranks apart, and 16 of all else."""
    one = ideal(QWEN, expert_parallel=8.0, layout=replace(ONE_STAGE, num_nodes=2))
    experts = communication.Copies.experts(one, np.array(1e9))
    assert (float(experts.replicas[0]), float(experts.stride[0])) == (2.0, 8.0)
    assert float(communication.Copies.unrouted(one, np.array(1e9)).replicas[0]) == 16.0
    _, with_step = communication.traffic_s(one, experts)
    assert with_step[0] == pytest.approx(2 * 0.5 * 2e9 / 50e9)


@pytest.mark.parametrize(("precision", "gain"), [("fp8", 2.0), ("mxfp8", 2.0), ("nvfp4", 4.0)])
def test_narrow_products_reach_a_higher_peak_but_not_attention(precision: str, gain: float) -> None:
    wide, narrow = ideal(LLAMA), ideal(LLAMA, **{precision: 1.0})
    share = narrow.parameters.fp4_gain if gain > 2 else narrow.parameters.fp8_gain
    before, after = layer_parts(wide), layer_parts(narrow)
    ratio = float(before["matrix_multiplication"][0] / after["matrix_multiplication"][0])
    assert ratio == pytest.approx(gain * float(share))
    assert float(before["attention"][0]) == pytest.approx(float(after["attention"][0]))


def test_making_operands_narrow_costs_memory_traffic() -> None:
    parameters = Parameters.default(DGX_H100)
    wide, narrow = (
        layer_parts(
            strategies_of(
                ONE_STAGE, transformer=LLAMA, machine=DGX_H100, parameters=parameters, fp8=flag
            )
        )
        for flag in (0.0, 1.0)
    )
    assert float(narrow["elementwise"][0]) > float(wide["elementwise"][0])


def test_biases_of_experts_and_their_clamp_are_streamed() -> None:
    """Of 8 experts a token 14 passes over hidden states of 2048 and 18 over the inner width of
    768, in 2 bytes."""
    parameters = replace(Parameters.default(DGX_H100), **IDEAL)
    plain, biased = (
        strategies_of(
            ONE_STAGE,
            transformer=QWEN,
            machine=DGX_H100,
            parameters=parameters,
            expert_biases=flag,
        )
        for flag in (0.0, 1.0)
    )
    more = layer_parts(biased)["experts"] - layer_parts(plain)["experts"]
    moved = 2 * QWEN.seq_length * 8 * (14 * 2048 + 18 * 768) * 2
    assert float(more[0]) == pytest.approx(moved / float(plain.memory_bytes_per_s))


@pytest.mark.parametrize("changes", [{}, {"full_checkpointing": 1.0}, {"tensor_parallel": 4.0}])
def test_equal_layers_cost_the_same_by_blocks(changes: dict[str, Any]) -> None:
    """What a model of one kind of layer costs by the short way, and by that of all kinds."""
    short = strategies_of(ONE_STAGE, transformer=LLAMA, machine=DGX_H100, **changes)
    # A recomputed module that the model does not have takes the way of all kinds.
    whole = strategies_of(
        ONE_STAGE, transformer=LLAMA, machine=DGX_H100, **changes, recompute_moe=1.0
    )
    assert short.of_equal_layers
    assert not whole.of_equal_layers
    for name, part in layer_parts(short).items():
        assert layer_parts(whole)[name] == pytest.approx(part), name


def test_a_window_shortens_attention() -> None:
    every = ideal(replace(QWEN, window_layers=0))
    half = ideal(replace(QWEN, window_layers=QWEN.num_layers // 2, attention_window=128))
    times = (float(layer_parts(one)["attention"][0]) for one in (half, every))
    reached = 2.0 * (128 + 128) / QWEN.seq_length
    assert next(times) / next(times) == pytest.approx((1.0 + reached) / 2.0)


def test_multi_token_prediction_lengthens_the_last_stage() -> None:
    layout = replace(ONE_STAGE, pipeline_parallel=2)
    plain, predicting = (ideal(replace(QWEN, mtp_layers=depth), layout=layout) for depth in (0, 1))
    before, after = (total(time_parts(one, MicroBatch.of(one))) for one in (plain, predicting))
    layer = float(total(layer_parts(plain))[0])
    more = float(after[0] - before[0]) / float(plain.micro_batches[0])
    assert more > layer


def test_recomputed_modules_are_computed_again() -> None:
    def repeated(**flags: Any) -> float:
        one = strategies_of(ONE_STAGE, transformer=DEEPSEEK, machine=DGX_H100, **flags)
        return float(np.max(layer_parts(one)["recomputation"]))

    alone = {name: repeated(**{f"recompute_{name}": 1.0}) for name in ("moe_act", "moe", "mlp")}
    up = repeated(recompute_mla_up_proj=1.0)
    block = mean_block(strategies_of(ONE_STAGE, transformer=DEEPSEEK, machine=DGX_H100))
    whole = float(np.max(block.forward))
    assert repeated() == 0.0
    assert 0.0 < alone["moe_act"] < alone["moe"] < whole
    assert 0.0 < up < whole
    assert repeated(full_checkpointing=1.0) == pytest.approx(whole)


def test_fused_experts_neither_stream_nor_cast_the_inner_width() -> None:
    apart, fused = (
        float(layer_parts(on_racks(8.0, 72, fused_experts=each))["experts"][0])
        for each in (0.0, 1.0)
    )
    assert fused < apart
