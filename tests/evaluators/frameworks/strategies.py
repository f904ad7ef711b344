"""Strategies of every kind that a launch has words for."""

from __future__ import annotations

from dataclasses import replace

from search_spaces.strategy import Strategy

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
