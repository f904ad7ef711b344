"""Time of communication: volumes, links and counts against their formulas by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotune.cost_model import Parameters, communication
from autotune.cost_model.strategies import Strategies
from search_spaces.strategy import Strategy
from tests.autotune.cost_model.examples import (
    DGX_A100,
    FRONTIER,
    LLAMA,
    strategies_of,
    strategy,
    without_losses,
)

LINK = 300e9
"""Bytes a second between two A100s of a node."""

NIC = 25e9
"""Bytes a second of one A100's share of the network."""

PLAIN = without_losses(DGX_A100)
HIDDEN = 2 * 2 * 2048 * 6144
"""Bytes of the hidden state of `strategy()`: 16 bits, MBS 2."""


def on_a100(*chosen: Strategy, parameters: Parameters = PLAIN, **changes: Any) -> Strategies:
    return strategies_of(*chosen, machine=DGX_A100, parameters=parameters, **changes)


@pytest.mark.parametrize(
    ("group", "stride", "rate"),
    [
        (2, 1, LINK),
        (8, 1, LINK),
        (4, 2, LINK),
        (16, 1, 8 * NIC),  # all eight of a node feed the ring
        (4, 4, 2 * NIC),  # two of them lie in each node
        (2, 8, NIC),
        (64, 64, NIC),
    ],
)
def test_what_a_ring_gets(group: int, stride: int, rate: float) -> None:
    """The link within a node; across nodes the network share of the group's ranks in a node."""
    one = on_a100(strategy())
    seconds = communication.ring_bytes_per_s(
        one, group=np.array(group), stride=np.array(stride), network=1.0
    )
    assert float(seconds) == pytest.approx(rate)


def test_a_ring_across_nodes_is_no_faster_than_its_links() -> None:
    slow = replace(DGX_A100, intra_node_gb_per_s=30)
    one = strategies_of(strategy(), machine=slow, parameters=PLAIN)
    seconds = communication.ring_bytes_per_s(
        one, group=np.array(16), stride=np.array(1), network=1.0
    )
    assert float(seconds) == pytest.approx(30e9)


@pytest.mark.parametrize("tensor_parallel", [1, 2, 4, 8])
def test_a_ring_all_reduce_sends_its_data_twice_but_for_one_part(tensor_parallel: int) -> None:
    """`2 (t - 1)/t` of the hidden state (Thakur et al. 2005), and `log2 t` latencies."""
    constants = replace(PLAIN, collective_latency_s=1e-3)
    one = on_a100(strategy(tensor_parallel=tensor_parallel), parameters=constants)
    expected = 2 * (tensor_parallel - 1) / tensor_parallel * HIDDEN / LINK
    seconds = communication.tensor_all_reduce_time_s(one)
    assert seconds[0] == pytest.approx(expected + 1e-3 * np.log2(tensor_parallel))


def test_all_reduces_of_a_layer() -> None:
    """Two forward, two backward, two when recomputed; as much with sequence parallelism, whose
    all-gathers and reduce-scatters are halves of them (Korthikanti et al. 2022, section 4.2.2)."""
    chosen = [
        strategy(activation_checkpointing=c, sequence_parallel=sequence)
        for sequence in (False, True)
        for c in ("none", "selective", "full")
    ]
    one = on_a100(*chosen)
    counts = communication.tensor_parallel_time_s(one) / communication.tensor_all_reduce_time_s(one)
    assert counts.tolist() == pytest.approx([4, 4, 6, 4, 4, 6])


def test_tensor_parallel_beyond_the_node_is_slower() -> None:
    """The rate, not only the volume: 2.1 times slower at 16 than at 8 was measured on Frontier."""
    chosen = [strategy(tensor_parallel=t, num_nodes=8, pipeline_parallel=1) for t in (1, 8, 16)]
    none, inside, across = communication.tensor_parallel_time_s(strategies_of(*chosen))
    assert across > 1.15 * inside
    assert none == 0


@pytest.mark.parametrize("context_parallel", [1, 2, 4])
def test_keys_and_values_go_around_the_ring(context_parallel: int) -> None:
    """Each rank's `2 x 2 bytes x s b/c x k h/a / t`, c - 1 times forward, twice that backward, less
    what the attention to the other parts takes."""
    layout = strategy(pipeline_parallel=1)
    one = strategies_of(
        layout,
        transformer=LLAMA,
        machine=DGX_A100,
        parameters=PLAIN,
        context_parallel=context_parallel,
    )
    part = 2 * 2 * (2 * 8192 / context_parallel) * 1024 / 2
    once = part * (context_parallel - 1) / LINK
    other_parts = (context_parallel - 1) / context_parallel
    for share, exposed in ((0.0, 3.0), (0.5, 1.5), (2.0, 0.0)):
        taken = share * once / max(other_parts, 0.1)
        attention = np.array([taken]), np.array([2.0 * taken])
        ring = communication.context_parallel_time_s(one, attention=attention)
        assert ring[0] == pytest.approx(exposed * once)


def test_cp_divides_tokens_and_multiplies_replicas() -> None:
    layout = strategy(num_nodes=1, pipeline_parallel=1)
    whole, cut = on_a100(layout), on_a100(layout, context_parallel=2.0, data_parallel=2.0)
    assert cut.tokens == pytest.approx(whole.tokens / 2)
    for each in (whole, cut):
        assert np.ravel(each.replicas).tolist() == [4]


@pytest.mark.parametrize(("nodes", "rate"), [(1, LINK), (2, NIC)])
def test_a_transfer_between_stages(nodes: int, rate: float) -> None:
    """`2 s b h` bytes forward and as many backward, over the network where there is one; for each
    virtual stage."""
    constants = replace(PLAIN, pipeline_latency_s=1e-3)
    chosen = [
        strategy(tensor_parallel=1, num_nodes=nodes, virtual_stages=v, pipeline_parallel=p)
        for v, p in ((1, 4), (3, 4), (1, 1))
    ]
    seconds = communication.pipeline_time_s(on_a100(*chosen, parameters=constants))
    hop = HIDDEN / rate + 1e-3
    assert seconds.tolist() == pytest.approx([2 * hop, 6 * hop, 0])


@pytest.mark.parametrize(("virtual_stages", "shown"), [(1, 1.0), (3, 0.5)])
def test_only_an_interleaved_schedule_hides_transfers(virtual_stages: int, shown: float) -> None:
    layout = strategy(virtual_stages=virtual_stages)
    all_, half = (
        communication.pipeline_time_s(
            on_a100(layout, parameters=replace(PLAIN, exposed_transfer=exposed))
        )
        for exposed in (1.0, 0.5)
    )
    assert half == pytest.approx(shown * all_)


def test_a_rank_sends_its_own_part_to_the_next_stage() -> None:
    """With sequence parallelism there is nothing else; without it each rank sends a part as well,
    and the next stage gathers them within its node (Narayanan et al. 2021, section 4.1)."""
    wide = strategy(tensor_parallel=8, pipeline_parallel=2)
    chosen = [replace(wide, sequence_parallel=s) for s in (True, False)]
    cut, gathered = communication.pipeline_time_s(on_a100(*chosen))
    assert cut == pytest.approx(2 * HIDDEN / 8 / NIC)
    assert cut < gathered <= cut + 2 * 7 / 8 * HIDDEN / LINK * 1.01


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_a_ring_of_replicas_sends_its_data_once_but_for_one_part(precision: str) -> None:
    """`(d - 1)/d` of the weights' 2 bytes each, 4 in fp32; TP 8, so the ring crosses nodes."""
    one = on_a100(
        strategy(tensor_parallel=8, pipeline_parallel=1, num_nodes=4, precision=precision)
    )
    seconds = communication.replica_ring_time_s(
        one, parameters_of_rank=np.array(1e9), group=one.replicas
    )
    width = 4 if precision == "fp32" else 2
    assert seconds[0] == pytest.approx(3 / 4 * width * 1e9 / NIC)


@pytest.mark.parametrize(
    ("zero_stage", "pipeline_parallel", "keeps", "each", "once"),
    [
        (0, 1, 0, 0, 2),  # an all-reduce of the gradients
        (1, 1, 0, 0, 2),  # their reduce-scatter, and an all-gather of the weights
        (2, 1, 0, 1, 1),  # gradients are reduced with every micro-batch
        (3, 1, 1, 3, 0),  # weights gathered forward and backward, gradients scattered
        (3, 2, 0, 2, 1),  # under a pipeline gradients are scattered once
        (3, 2, 1, 0, 2),  # and weights gathered once, where a program keeps them
        (2, 2, 1, 1, 1),
    ],
)
def test_what_each_zero_stage_sends(
    zero_stage: int, pipeline_parallel: int, keeps: int, each: int, once: int
) -> None:
    """In rings over the replicas: with every micro-batch, and once in a step."""
    layout = strategy(zero_stage=zero_stage, pipeline_parallel=pipeline_parallel)
    one = on_a100(layout, parameters=replace(PLAIN, keeps_gathered=keeps))
    n = np.array(1e9)
    copies = communication.Copies.unrouted(one, n)
    ring = communication.replica_ring_time_s(one, parameters_of_rank=n, group=one.replicas)
    with_each, with_step = communication.traffic_s(one, copies)
    assert with_each[0] == pytest.approx(each * ring[0])
    assert with_step[0] == pytest.approx(once * ring[0])


def test_zero_over_a_part_of_the_replicas() -> None:
    """The gradients are reduced over all of them, the weights gathered over those that share."""
    layout = strategy(tensor_parallel=8, pipeline_parallel=1, num_nodes=8)
    one = on_a100(layout, zero_shard_gpus=2.0)
    copies = communication.Copies.unrouted(one, np.array(1e9))
    _, seconds = communication.traffic_s(one, copies)
    assert seconds[0] == pytest.approx((7 / 8 + 1 / 2) * 2e9 / NIC)


@pytest.mark.parametrize(
    ("exposed", "traffic", "behind", "expected"),
    [(1.0, 5.0, 9.0, 5.0), (0.25, 4.0, 8.0, 1.0), (0.0, 8.0, 2.0, 6.0), (3.0, 2.0, 2.0, 2.0)],
)
def test_traffic_behind_computation(
    exposed: float, traffic: float, behind: float, expected: float
) -> None:
    """What is hidden is no more than the work that it runs behind; never less than nothing."""
    one = on_a100(strategy(), parameters=replace(PLAIN, exposed_data_parallel=exposed))
    seconds = communication.exposed_time_s(one, np.array(traffic), behind=np.array(behind))
    assert float(seconds) == pytest.approx(expected)


def test_latency_of_the_replicas() -> None:
    """It grows with each doubling beyond a node, whatever ZeRO shards."""
    constants = replace(PLAIN, replica_step_s=0.001)
    chosen = [
        strategy(zero_stage=z, num_nodes=n, tensor_parallel=1, pipeline_parallel=8)
        for z, n in ((0, 64), (1, 64), (3, 16), (1, 8), (1, 1))
    ]
    seconds = communication.replica_latency_s(on_a100(*chosen, parameters=constants))
    assert seconds.tolist() == pytest.approx([0.003, 0.003, 0.001, 0, 0])


def test_constants_of_links() -> None:
    """Each kind of traffic has its own share of the data sheet's rate."""
    constants = replace(
        without_losses(FRONTIER),
        intra_node_efficiency=0.5,
        inter_node_efficiency=0.4,
        data_parallel_efficiency=0.2,
        pipeline_efficiency=0.1,
    )
    layout = strategy(tensor_parallel=2, pipeline_parallel=1, num_nodes=4)
    one = strategies_of(layout, parameters=constants)
    assert communication.tensor_all_reduce_time_s(one)[0] == pytest.approx(HIDDEN / 50e9)
    wide = strategies_of(replace(layout, tensor_parallel=16), parameters=constants)
    across = 2 * 15 / 16 * HIDDEN / min(50e9, 8 * 12.5e9 * 0.4)
    assert communication.tensor_all_reduce_time_s(wide)[0] == pytest.approx(across)
    ring = communication.replica_ring_time_s(
        one, parameters_of_rank=np.array(1e9), group=one.replicas
    )
    assert ring[0] == pytest.approx(15 / 16 * 2e9 / (4 * 12.5e9 * 0.2))
    staged = strategies_of(
        replace(layout, tensor_parallel=1, pipeline_parallel=4), parameters=constants
    )
    assert communication.pipeline_time_s(staged)[0] == pytest.approx(2 * HIDDEN / 1.25e9)
