"""A strategy as DeepSpeed's configuration, for trials and for launch files."""

from __future__ import annotations

import json
from typing import Any

from evaluators.adapter.names import rank_parameters
from evaluators.cluster.profile import ProgramName
from search_spaces.machine import Machine
from search_spaces.program import OwnDimension
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

GRADIENT_CLIPPING = 1.0
"""Maximum global gradient norm, as in GPT-3 and Llama; DeepSpeed does not clip by default."""

INITIAL_SCALE_POWER = 12
"""The first loss scale of fp16 is 2^12: with DeepSpeed's 2^16 a short run skips its first steps."""

MOST_IN_BUCKET = 500_000_000
"""DeepSpeed's default size of a communication bucket, in elements, which it allocates at once."""

OVERLAP = OwnDimension(name="overlap", values=(True, False), searched=False)
"""Whether ZeRO reduces gradients during the backward pass (`overlap_comm`), as in the
configurations of Megatron-DeepSpeed (`examples_deepspeed/azure`). By default DeepSpeed does so at
stage 3 only. It takes a second bucket, and has no effect at stage 0 and in a pipeline."""

TRAINER_LEARNING_RATE = 1e-3

NEVER = 10**9
"""Steps between DeepSpeed's progress lines, which the trainer's own replace."""


def deepspeed_config(
    transformer: Transformer, strategy: Strategy, *, data_parallel: int, program: ProgramName
) -> dict[str, Any]:
    """Return DeepSpeed's configuration for `strategy` at its own GAS.

    Trials and launch files use the same, so that a launch runs as it was measured. Only the bundled
    trainer gets two settings that Megatron-DeepSpeed cannot use:

    - the optimizer. Megatron passes its own to DeepSpeed. The trainer uses torch's AdamW
      (`torch_adam`) on every device, since DeepSpeed's fused one is compiled at first use: that
      takes over two minutes on CPUs, and needs a compiler that a node with GPUs may lack.
    - the type of accumulated gradients with bf16 and ZeRO 0. The trainer's DeepSpeed requires it;
      some of the older releases that Megatron-DeepSpeed runs with refuse it.

    Args:
        program: the trainer to configure.
    """
    micro_batch, accumulation = strategy.micro_batch_size, strategy.gradient_accumulation_steps
    config: dict[str, Any] = {
        "train_batch_size": micro_batch * accumulation * data_parallel,
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": accumulation,
        "zero_optimization": {
            "stage": strategy.zero_stage,
            "overlap_comm": strategy.value(OVERLAP.name) is not False and data_parallel > 1,
            "reduce_bucket_size": min(MOST_IN_BUCKET, rank_parameters(transformer, strategy)),
        },
        "gradient_clipping": GRADIENT_CLIPPING,
        "steps_per_print": NEVER,
    }
    if strategy.precision == "bf16":
        config["bf16"] = {"enabled": True}
    elif strategy.precision == "fp16":
        config["fp16"] = {"enabled": True, "initial_scale_power": INITIAL_SCALE_POWER}
    if program == "trainer":
        rate = {"lr": TRAINER_LEARNING_RATE, "torch_adam": True}
        config["optimizer"] = {"type": "AdamW", "params": rate}
        # Without ZeRO, DeepSpeed's bf16 optimizer only accepts gradients in bf16.
        if strategy.precision == "bf16" and strategy.zero_stage == 0:
            config["data_types"] = {"grad_accum_dtype": "bf16"}
    return config


def ds_config_json(transformer: Transformer, machine: Machine, strategy: Strategy) -> str:
    """Return the text of `ds_config.json` for Megatron-DeepSpeed."""
    config = deepspeed_config(
        transformer,
        strategy,
        data_parallel=strategy.data_parallel(machine.gpus_per_node),
        program="megatron-deepspeed",
    )
    return json.dumps(config, indent=2) + "\n"
