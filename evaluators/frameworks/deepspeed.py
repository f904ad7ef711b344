"""A strategy as the DeepSpeed configuration of the bundled trainer, for trials and launch files."""

from __future__ import annotations

from typing import Any

from evaluators.adapter.knobs import knobs_of_bundled, own_dimensions
from evaluators.adapter.names import rank_parameters
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

GRADIENT_CLIPPING = 1.0
"""Maximum global gradient norm, as in GPT-3 and Llama; DeepSpeed does not clip by default."""

INITIAL_SCALE_POWER = 12
"""The first loss scale of fp16 is 2^12: with DeepSpeed's 2^16 a short run skips its first steps."""

KNOBS = own_dimensions(knobs_of_bundled())
"""The knobs of DeepSpeed's engine; their first values are DeepSpeed's defaults, but ZeRO reduces
gradients during the backward pass (`overlap_comm`), as in the configurations of Megatron-DeepSpeed
(`examples_deepspeed/azure`)."""

KEYS = {
    "allgather_bucket": "allgather_bucket_size",
    "prefetch_bucket": "stage3_prefetch_bucket_size",
    "persistence_threshold": "stage3_param_persistence_threshold",
}
"""Knob -> the key that is left out without a choice."""

TRAINER_LEARNING_RATE = 1e-3

NEVER = 10**9
"""Steps between DeepSpeed's progress lines, which the trainer's own replace."""


def deepspeed_config(
    transformer: Transformer, strategy: Strategy, *, data_parallel: int
) -> dict[str, Any]:
    """Return DeepSpeed's configuration for `strategy` at its own GAS.

    Trials and launch files use the same, so that a launch runs as it was measured. The optimizer is
    torch's AdamW (`torch_adam`) on every device, since DeepSpeed's fused one is compiled at first
    use: that takes over two minutes on CPUs, and needs a compiler that a node with GPUs may lack.
    """
    micro_batch, accumulation = strategy.micro_batch_size, strategy.gradient_accumulation_steps
    chosen = dict(strategy.settings)
    knobs: dict[str, Any] = {each.name: each.values[0] for each in KNOBS} | chosen
    config: dict[str, Any] = {
        "train_batch_size": micro_batch * accumulation * data_parallel,
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": accumulation,
        "zero_optimization": {
            "stage": strategy.zero_stage,
            "overlap_comm": knobs["overlap"] and data_parallel > 1,
            # DeepSpeed allocates the whole bucket at once.
            "reduce_bucket_size": min(
                knobs["reduce_bucket"], rank_parameters(transformer, strategy)
            ),
            **{key: chosen[name] for name, key in KEYS.items() if name in chosen},
        },
        "gradient_clipping": GRADIENT_CLIPPING,
        "steps_per_print": NEVER,
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": TRAINER_LEARNING_RATE, "torch_adam": True},
        },
    }
    if strategy.precision == "bf16":
        config["bf16"] = {"enabled": True}
    elif strategy.precision == "fp16":
        config["fp16"] = {"enabled": True, "initial_scale_power": INITIAL_SCALE_POWER}
    # Without ZeRO, DeepSpeed's bf16 optimizer only accepts gradients in bf16.
    if strategy.precision == "bf16" and strategy.zero_stage == 0:
        config["data_types"] = {"grad_accum_dtype": "bf16"}
    return config
