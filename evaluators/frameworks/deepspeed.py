"""A strategy as DeepSpeed's configuration: what trials measure with and what is launched."""

from __future__ import annotations

import json
from typing import Any

from evaluators.cluster.profile import ProgramName
from search_spaces.machine import Machine
from search_spaces.program import OwnDimension
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

GRADIENT_CLIPPING = 1.0
"""Largest global gradient norm, as in GPT-3 and Llama; DeepSpeed itself would not clip at all."""

INITIAL_SCALE_POWER = 12
"""fp16's first loss scale is 2^12: from DeepSpeed's 2^16 a short run skips its first steps."""

MOST_IN_BUCKET = 500_000_000
"""DeepSpeed's own default of a communication bucket, elements; it allocates all of it at once."""

OVERLAP = OwnDimension(name="overlap", values=(True, False), searched=False)
"""Whether ZeRO reduces gradients while the backward pass goes on (`overlap_comm`), as the
configurations do that come with Megatron-DeepSpeed (`examples_deepspeed/azure`). DeepSpeed's own
default is on for stage 3 alone. It takes a second bucket, and has no effect at stage 0 and in a
pipeline, which switches it off."""

TRAINER_LEARNING_RATE = 1e-3

NEVER = 10**9
"""Steps between DeepSpeed's own lines of progress, beside those of the program."""


def deepspeed_config(
    transformer: Transformer, strategy: Strategy, *, data_parallel: int, program: ProgramName
) -> dict[str, Any]:
    """Return what DeepSpeed is configured with for `strategy` at its own GAS.

    Trials and launch files alike are configured here, so what is launched is what was measured.
    Two settings are the bundled trainer's alone, because the other program cannot take them:

    - the optimizer. Megatron hands DeepSpeed one of its own, beside which this section has no
      effect. The trainer has none, and takes torch's AdamW (`torch_adam`) on every device:
      DeepSpeed's fused one is compiled at its first use, for over two minutes on CPUs, longer than
      the trial, and with a compiler that a node with GPUs may lack.
    - the type in which gradients accumulate with bf16 and ZeRO 0. The trainer's DeepSpeed wants it
      told; Megatron-DeepSpeed runs with older releases, some of which refuse it.

    Args:
        program: that is configured.
    """
    micro_batch, accumulation = strategy.micro_batch_size, strategy.gradient_accumulation_steps
    config: dict[str, Any] = {
        "train_batch_size": micro_batch * accumulation * data_parallel,
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": accumulation,
        "zero_optimization": {
            "stage": strategy.zero_stage,
            "overlap_comm": strategy.value(OVERLAP.name) is not False and data_parallel > 1,
            "reduce_bucket_size": min(MOST_IN_BUCKET, _largest_share(transformer, strategy)),
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
        # Without ZeRO, DeepSpeed's bf16 optimizer takes gradients in bf16 alone.
        if strategy.precision == "bf16" and strategy.zero_stage == 0:
            config["data_types"] = {"grad_accum_dtype": "bf16"}
    return config


def ds_config_json(transformer: Transformer, machine: Machine, strategy: Strategy) -> str:
    """Return the text of the file that belongs to Megatron-DeepSpeed's arguments."""
    config = deepspeed_config(
        transformer,
        strategy,
        data_parallel=strategy.data_parallel(machine.gpus_per_node),
        program="megatron-deepspeed",
    )
    return json.dumps(config, indent=2) + "\n"


def _largest_share(transformer: Transformer, strategy: Strategy) -> int:
    """Return the parameters of the rank that holds most, at the very most."""
    layers = -(-transformer.num_layers // strategy.pipeline_parallel)
    ends = 2 * transformer.embedding_parameters + transformer.seq_length * transformer.hidden_size
    layer = max(kind.parameters for kind in transformer.kinds)
    cut = (layers * layer + ends) // strategy.tensor_parallel
    return cut + transformer.hidden_size * (transformer.seq_length + 8 * layers)
