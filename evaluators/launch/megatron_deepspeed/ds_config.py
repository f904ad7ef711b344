"""A strategy as DeepSpeed's JSON configuration."""

from __future__ import annotations

import json
from typing import Any

from search_spaces.machine import Machine
from search_spaces.strategy import Strategy

GRADIENT_CLIPPING = 1.0
"""Largest global gradient norm, as in GPT-3 and Llama; DeepSpeed itself would not clip at all."""

INITIAL_SCALE_POWER = 12
"""fp16's first loss scale is 2^12: from DeepSpeed's 2^16 a short run skips its first steps."""


def ds_config(machine: Machine, strategy: Strategy) -> dict[str, Any]:
    """The configuration that belongs to `arguments` of the same strategy.

    `data_types` is left out on purpose: the type in which gradients accumulate follows the
    DeepSpeed release, and some releases refuse what others need.
    """
    return {
        "train_batch_size": strategy.global_batch_size(machine.gpus_per_node),
        "train_micro_batch_size_per_gpu": strategy.micro_batch_size,
        "gradient_accumulation_steps": strategy.gradient_accumulation_steps,
        "zero_optimization": {"stage": strategy.zero_stage},
        "gradient_clipping": GRADIENT_CLIPPING,
        "steps_per_print": 10,
        "wall_clock_breakdown": False,
    } | _precision(strategy)


def ds_config_json(machine: Machine, strategy: Strategy) -> str:
    return json.dumps(ds_config(machine, strategy), indent=2) + "\n"


def _precision(strategy: Strategy) -> dict[str, Any]:
    match strategy.precision:
        case "fp32":
            return {}
        case "bf16":
            return {"bf16": {"enabled": True}}
        case "fp16":
            scale = {"loss_scale": 0, "initial_scale_power": INITIAL_SCALE_POWER}
            return {"fp16": {"enabled": True, **scale}}
