"""Time of computation: each term against its formula by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.cost_model import Parameters, compute
from autotune.cost_model.communication import Copies
from autotune.cost_model.strategies import Strategies
from search_spaces.transformer import Transformer
from tests.autotune.cost_model.examples import (
    DGX_A100,
    GPT_22B,
    GPT_175B,
    LLAMA,
    strategies_of,
    strategy,
    without_limit,
    without_losses,
)

NO_TRAFFIC = without_limit(DGX_A100, "memory_bandwidth_gb_per_s")
PEAK = 312e12
A100 = Parameters.default(DGX_A100)


def lossless(transformer: Transformer, **changes: object) -> Strategies:
    """One strategy on A100s that run at their peak and wait for no memory."""
    layout = strategy(pipeline_parallel=1, num_nodes=1, **changes)
    return strategies_of(
        layout,
        transformer=transformer,
        machine=NO_TRAFFIC,
        parameters=without_losses(NO_TRAFFIC),
    )


def value(array: object) -> float:
    return float(np.ravel(np.asarray(array))[0])


@pytest.mark.parametrize(
    ("rows", "columns", "expected"),
    [
        (256 * 12, 128 * 9, 1.0),  # 108 tiles, one each
        (256 * 216, 128, 1.0),  # 216 tiles, two waves
        (256 * 54, 128, 0.96),  # 54 large tiles hold half of the units, 108 of the middle ones all
        (256 * 109, 128, 0.96 * 218 / 324),  # one tile too many: 218 middle ones in three waves
        (64 * 216, 64, 0.75),  # 216 small tiles, two on each unit
        (64, 64, 0.75 / 216),  # one small tile, on half of one unit
    ],
)
def test_waves_of_tiles(rows: float, columns: float, expected: float) -> None:
    """On an A100's 108 units, the best of 256 x 128, 128 x 128 (0.96) and 64 x 64 (0.75)."""
    efficiency = compute.wave_efficiency(np.array(rows), np.array(columns), compute_units=108)
    assert value(efficiency) == pytest.approx(expected)


def test_a_tile_at_the_edge_is_computed_whole() -> None:
    """100 x 100 of one 128 x 128 tile against four of 64 x 64: two waves against 4/216 of one."""
    efficiency = compute.wave_efficiency(np.array(100.0), np.array(100.0), compute_units=1)
    used = 100 * 100 / 128**2
    assert value(efficiency) == pytest.approx(max(0.96 * used, 0.75 * used))


@pytest.mark.parametrize(
    ("widths", "expected"),
    [
        ((64, 128, 4096), 1.0),
        ((64, 72, 4096), 0.75),
        ((63, 64), 0.55),
        ((72, 63), 0.55),
        ((64, 1), 0.55),
    ],
)
def test_alignment(widths: tuple[float, ...], expected: float) -> None:
    constants = replace(A100, misaligned_gemm=0.75, odd_gemm=0.55)
    one = strategies_of(strategy(), machine=DGX_A100, parameters=constants)
    assert value(compute.alignment(one, *map(np.array, widths))) == expected


def test_a_product_of_matrices() -> None:
    """`2MNK / (peak x efficiency)`, half the rate where the inner dimension is `gemm_depth`."""
    constants = replace(A100, gemm_efficiency=0.8, gemm_depth=64.0)
    one = strategies_of(strategy(), machine=NO_TRAFFIC, parameters=constants)
    sizes = (np.array(256.0 * 12), np.array(128.0 * 9))
    shallow = compute.gemm_time_s(one, *sizes, np.array(64.0))
    deep = compute.gemm_time_s(one, *sizes, np.array(64.0 * 7))
    products = 2 * 3072 * 1152
    assert value(shallow) == pytest.approx(products * 64 / (PEAK * 0.8 * 0.5))
    assert value(deep) == pytest.approx(products * 448 / (PEAK * 0.8 * 7 / 8))


def test_a_product_that_waits_for_memory() -> None:
    """Its three matrices of 2 bytes through the HBM, where that takes longer."""
    slow = replace(DGX_A100, memory_bandwidth_gb_per_s=5.0)
    one = strategies_of(strategy(), machine=slow, parameters=replace(A100, memory_efficiency=0.5))
    seconds = compute.gemm_time_s(one, np.array(512.0), np.array(256.0), np.array(128.0))
    assert value(seconds) == pytest.approx(2 * (512 * 256 + 512 * 128 + 256 * 128) / 2.5e9)


def test_precisions() -> None:
    """fp32 at `fp32_rate` of the peak, fp8 at twice the peak times `fp8_gain`."""
    constants = replace(A100, fp32_rate=0.25, fp8_gain=0.8, gemm_efficiency=1.0)
    half = strategies_of(strategy(), machine=DGX_A100, parameters=constants)
    single = strategies_of(strategy(precision="fp32"), machine=DGX_A100, parameters=constants)
    eight = strategies_of(strategy(), machine=DGX_A100, parameters=constants, fp8=1.0)
    rates = [value(each.gemm_flops) for each in (half, single, eight)]
    assert rates == pytest.approx([PEAK, PEAK / 4, PEAK * 1.6])


@pytest.mark.parametrize("tensor_parallel", [1, 2, 8])
@pytest.mark.parametrize("transformer", [GPT_22B, GPT_175B])
def test_operations_of_a_gpts_matrices(transformer: Transformer, tensor_parallel: int) -> None:
    """`72 b s h^2` for each layer, forward and backward (Korthikanti et al. 2022, appendix A)."""
    one = lossless(transformer, tensor_parallel=tensor_parallel)
    forward, backward = compute.matrix_time_s(one)
    expected = 72 * 2 * transformer.seq_length * transformer.hidden_size**2 / tensor_parallel
    assert value(forward + backward) * PEAK == pytest.approx(expected)
    assert value(backward) == pytest.approx(2 * value(forward))


@pytest.mark.parametrize("tensor_parallel", [1, 4])
def test_operations_of_grouped_heads_and_a_gated_mlp(tensor_parallel: int) -> None:
    """Six for each weight and token."""
    one = lossless(LLAMA, tensor_parallel=tensor_parallel)
    weights = LLAMA.kinds[0].attention_parameters + LLAMA.kinds[0].mlp_parameters
    times = compute.matrix_time_s(one)
    expected = 6 * weights * 2 * LLAMA.seq_length / tensor_parallel
    assert value(times[0] + times[1]) * PEAK == pytest.approx(expected)


def test_operations_of_attention_without_flash() -> None:
    """`12 s^2 h b` forward and backward, the whole matrix of scores counted."""
    one = lossless(GPT_175B, tensor_parallel=4, flash_attention=False)
    times = compute.attention_time_s(one)
    expected = 12 * 2048**2 * GPT_175B.hidden_size * 2 / 4
    assert value(times[0] + times[1]) * PEAK == pytest.approx(expected)


def test_operations_of_flash_attention() -> None:
    """The causal half: `2 s^2 h b` forward, two and a half times as much backward; the efficiency
    is that with heads of 128, and less with heads of 64."""
    one = lossless(GPT_175B, tensor_parallel=4)
    assert value(one.head_width) == 128
    forward, backward = compute.attention_time_s(one)
    flops = 2 * 2048**2 * GPT_175B.hidden_size * 2 / 4
    assert value(forward) * PEAK * float(A100.flash_efficiency) == pytest.approx(flops)
    assert value(backward) == pytest.approx(2.5 * value(forward))
    narrow = replace(GPT_175B, num_attention_heads=192, num_query_groups=192)
    slower = compute.attention_time_s(lossless(narrow, tensor_parallel=4))[0]
    assert value(slower / forward) == pytest.approx((128 / 160) / (64 / 96))


def test_kernels_of_attention() -> None:
    """FlashAttention 1 at its own efficiency; heads of no multiple of 8 at a part of it."""
    plain = strategies_of(strategy(), machine=DGX_A100)
    one = strategies_of(strategy(), machine=DGX_A100, flash_1=1.0)
    ratio = value(compute.attention_time_s(one)[0] / compute.attention_time_s(plain)[0])
    assert ratio == pytest.approx(float(A100.flash_efficiency) / float(A100.flash_1_efficiency))


@pytest.mark.parametrize("flash", [True, False])
def test_heads_that_kernels_must_pad(flash: bool) -> None:
    """A head of 122.88 runs at `misaligned_head` of the rate of one of 128, or a little less."""
    times = []
    for hidden in (6144.0, 6400.0):
        layout = strategy(flash_attention=flash)
        one = strategies_of(
            layout,
            machine=NO_TRAFFIC,
            parameters=replace(A100, misaligned_head=0.5),
            hidden_size=hidden,
            num_attention_heads=50.0,
            head_width=hidden / 50.0,
        )
        times.append(value(compute.attention_time_s(one)[0]) / hidden)
    assert times[0] / times[1] == pytest.approx(2, rel=0.03)


def test_scores_without_flash_pass_through_memory() -> None:
    """`score_traffic` bytes for each of the `a s^2 b / t` scores, twice as many backward."""
    endless = without_limit(replace(DGX_A100, memory_bandwidth_gb_per_s=5.0), "peak_tflops")
    constants = replace(A100, memory_efficiency=1.0, score_traffic=9.0, unfused_score_traffic=20.0)
    layout = strategy(flash_attention=False)
    scores = 48 * 2048**2 * 2 / 2
    for unfused, each in ((0.0, 9), (1.0, 20)):
        one = strategies_of(layout, machine=endless, parameters=constants, unfused_softmax=unfused)
        forward, backward = compute.attention_time_s(one)
        assert value(forward) == pytest.approx(each * scores / 5e9)
        assert value(backward) == pytest.approx(2 * value(forward))


def test_elementwise_traffic() -> None:
    """11 passes of a GPT's norms, whole or cut by sequence parallelism; 6 + 2 f/h cut by TP; 7 and
    6 + 3 f/h of a gated model with fused norms."""
    constants = replace(A100, memory_efficiency=1.0)
    bandwidth = 2000e9
    hidden = 2 * 2 * 2048 * 6144
    for sequence_parallel, shards in ((False, 1), (True, 4)):
        layout = strategy(tensor_parallel=4, sequence_parallel=sequence_parallel)
        one = strategies_of(layout, machine=DGX_A100, parameters=constants)
        forward, backward = compute.elementwise_time_s(one)
        assert value(forward) == pytest.approx((11 / shards + 14 / 4) * hidden / bandwidth)
        assert value(backward) == pytest.approx(2 * value(forward))
    hidden = 2 * 2 * 8192 * 4096
    for fused, norms in ((1.0, 7), (0.0, 2 * 18 + 2 * 3)):
        one = strategies_of(
            strategy(tensor_parallel=1),
            transformer=LLAMA,
            machine=DGX_A100,
            parameters=constants,
            fused_norm=fused,
        )
        expected = (norms + 6 + 3 * 14336 / 4096) * hidden / bandwidth
        assert value(compute.elementwise_time_s(one)[0]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("checkpointing", "expected"), [("none", 0), ("selective", 2), ("full", 7)]
)
def test_recomputation(checkpointing: str, expected: float) -> None:
    one = strategies_of(strategy(activation_checkpointing=checkpointing))
    parts = {"matrix": np.array(1.0), "attention": np.array(2.0), "elementwise": np.array(4.0)}
    assert value(compute.recomputation_time_s(one, **parts)) == expected


def test_recomputation_by_operation() -> None:
    """Half of the products and what lies between them, never the attention."""
    constants = replace(strategies_of(strategy()).parameters, selective_by_operation=1.0)
    one = strategies_of(strategy(activation_checkpointing="selective"), parameters=constants)
    parts = {"matrix": np.array(1.0), "attention": np.array(2.0), "elementwise": np.array(4.0)}
    assert value(compute.recomputation_time_s(one, **parts)) == 4.5


def test_operations_of_the_logits() -> None:
    """`6 b s h V / t`, and the loss with the traffic of Megatron-LM's kernels."""
    one = lossless(GPT_22B, tensor_parallel=2)
    flops = 6 * 2 * 2048 * 6144 * 51200 / 2
    assert value(compute.logits_time_s(one)) * PEAK == pytest.approx(flops)
    endless = without_limit(DGX_A100, "peak_tflops")
    constants = replace(without_losses(endless), memory_efficiency=1.0)
    memory_bound = strategies_of(strategy(), machine=endless, parameters=constants)
    products = 2 * (2 * 2048 * 6144 + 2 * 2048 * 25600 + 6144 * 25600)
    loss = (6 + 4 + 8 + 8 + 8 + 6) * 2 * 2048 * 25600
    assert value(compute.logits_time_s(memory_bound)) == pytest.approx(
        (3 * products + loss) / 2000e9
    )


@pytest.mark.parametrize(
    ("vocabulary", "tensor_parallel", "padded"),
    [(51200, 8, 6400), (50257, 1, 50304), (50257, 8, 6400), (32000, 8, 4096), (1, 4, 128)],
)
def test_the_vocabulary_is_padded(vocabulary: int, tensor_parallel: int, padded: int) -> None:
    """To a multiple of 128 for each tensor-parallel rank, as Megatron-LM pads it: GPT-2's 50257 to
    50304 on one rank."""
    transformer = replace(GPT_22B, vocab_size=vocabulary)
    one = strategies_of(strategy(tensor_parallel=tensor_parallel), transformer=transformer)
    assert value(one.padded_vocabulary) == padded


def test_embedding_traffic() -> None:
    one = strategies_of(
        strategy(), machine=DGX_A100, parameters=replace(A100, memory_efficiency=0.5)
    )
    assert value(compute.embedding_time_s(one)) == pytest.approx(6 * 2 * 2 * 2048 * 6144 / 1e12)


def test_the_hosts_launches() -> None:
    """Three passes, four with full checkpointing, a share more with tensor parallelism, and the
    hooks of ZeRO 3."""
    constants = replace(
        A100, host_floor_s=0.001, tensor_parallel_host=0.25, sharded_weights_host_s=0.01
    )
    chosen = [
        strategy(tensor_parallel=t, activation_checkpointing=c, zero_stage=z)
        for t, c, z in (
            (1, "none", 0),
            (1, "selective", 2),
            (1, "full", 0),
            (2, "full", 0),
            (1, "none", 3),
        )
    ]
    seconds = compute.host_time_s(strategies_of(*chosen, machine=DGX_A100, parameters=constants))
    assert seconds.tolist() == pytest.approx([0.003, 0.003, 0.004, 0.005, 0.013])


@pytest.mark.parametrize(("zero_stage", "shards"), [(0, 1), (1, 2), (2, 2), (3, 2)])
def test_the_optimizers_traffic(zero_stage: int, shards: int) -> None:
    """6 bytes for each parameter of a rank and 14 for each of its shard."""
    constants = replace(A100, memory_efficiency=0.8, optimizer_efficiency=0.5)
    layout = strategy(zero_stage=zero_stage)
    one = strategies_of(layout, machine=DGX_A100, parameters=constants)
    seconds = compute.optimizer_time_s(one, Copies.unrouted(one, np.array(1e9)))
    assert value(seconds) == pytest.approx((6 + 14 / shards) * 1e9 / (2000e9 * 0.8 * 0.5))
