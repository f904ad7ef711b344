"""Strategies of every kind that a launch has words for, and any legal one."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from hypothesis import strategies as st

from search_spaces.strategy import Precision, Strategy
from search_spaces.transformer import ActivationCheckpointing

BASE = Strategy(
    tensor_parallel=2,
    pipeline_parallel=4,
    micro_batch_size=2,
    gradient_accumulation_steps=8,
    zero_stage=1,
    num_nodes=2,
)

STRATEGIES = {
    "the defaults": BASE,
    "no model parallelism, ZeRO-3": replace(
        BASE,
        tensor_parallel=1,
        pipeline_parallel=1,
        micro_batch_size=4,
        gradient_accumulation_steps=3,
        zero_stage=3,
        num_nodes=1,
        activation_checkpointing="none",
        precision="fp16",
    ),
    "ZeRO-2 with tensor parallelism": replace(
        BASE,
        tensor_parallel=8,
        pipeline_parallel=1,
        micro_batch_size=1,
        gradient_accumulation_steps=16,
        zero_stage=2,
        num_nodes=4,
        sequence_parallel=True,
    ),
    "ZeRO-0 in fp32": replace(
        BASE,
        tensor_parallel=1,
        pipeline_parallel=2,
        micro_batch_size=1,
        gradient_accumulation_steps=5,
        zero_stage=0,
        num_nodes=1,
        activation_checkpointing="selective",
        flash_attention=False,
        precision="fp32",
    ),
    "interleaved": replace(
        BASE, tensor_parallel=4, micro_batch_size=1, virtual_stages=3, sequence_parallel=True
    ),
    "interleaved, without a sharded optimizer": replace(
        BASE,
        pipeline_parallel=8,
        micro_batch_size=1,
        gradient_accumulation_steps=16,
        zero_stage=0,
        virtual_stages=2,
        activation_checkpointing="selective",
    ),
}

LAYERS = 48
"""Of the model that these strategies are for: gpt-22b."""

GPUS = 8
"""Of each of their nodes."""

_CHECKPOINTING: tuple[ActivationCheckpointing, ...] = ("none", "selective", "full")
_PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16", "fp16")


@st.composite
def legal_strategies(draw: st.DrawFn) -> Strategy:
    """Any strategy for a model of 48 layers, on nodes of 8 GPUs, that Megatron-DeepSpeed runs."""
    tensor = draw(st.sampled_from([1, 2, 4, 8]))
    pipeline = draw(st.sampled_from([1, 2, 3, 4, 6, 8]))
    data = draw(st.integers(1, 6))
    precision = draw(st.sampled_from(_PRECISIONS))
    strategy = Strategy(
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        micro_batch_size=draw(st.integers(1, 16)),
        gradient_accumulation_steps=draw(st.integers(1, 640)),
        zero_stage=draw(st.integers(0, 3 if pipeline == 1 else 1)),
        num_nodes=tensor * pipeline * data // gcd(tensor * pipeline * data, GPUS),
        activation_checkpointing=draw(st.sampled_from(_CHECKPOINTING)),
        sequence_parallel=tensor > 1 and draw(st.booleans()),
        flash_attention=precision != "fp32" and draw(st.booleans()),
        precision=precision,
    )
    if pipeline < 3:
        return strategy
    chunks = [n for n in (1, 2, 3, 4) if LAYERS // pipeline % n == 0]
    stages = draw(st.sampled_from(chunks))
    return replace(
        strategy,
        virtual_stages=stages,
        gradient_accumulation_steps=pipeline * draw(st.integers(1, 40)),
    )
