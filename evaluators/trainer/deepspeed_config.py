"""The DeepSpeed configuration of a trial."""

from __future__ import annotations

from typing import Any

from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

LEARNING_RATE = 1e-3
GRADIENT_CLIPPING = 1.0
# Of fp16's loss scale: large enough to matter, small enough for a few steps not to overflow.
INITIAL_SCALE_POWER = 12


# DeepSpeed's own default of a communication bucket, elements; it allocates all of it at once.
MOST_IN_BUCKET = 500_000_000


def deepspeed_config(
    transformer: Transformer, strategy: Strategy, *, data_parallel: int
) -> dict[str, Any]:
    """What `deepspeed.initialize` is given for `strategy` at its own GAS."""
    micro_batch, accumulation = strategy.micro_batch_size, strategy.gradient_accumulation_steps
    return {
        "train_batch_size": micro_batch * accumulation * data_parallel,
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": GRADIENT_CLIPPING,
        # torch's own AdamW: DeepSpeed's fused one is compiled at first use, which takes minutes.
        "optimizer": {"type": "AdamW", "params": {"lr": LEARNING_RATE, "torch_adam": True}},
        "zero_optimization": {
            "stage": strategy.zero_stage,
            "reduce_bucket_size": min(MOST_IN_BUCKET, _largest_share(transformer, strategy)),
        },
        "pipeline": {"pipe_partitioned": False, "grad_partitioned": False},
        "steps_per_print": 10**9,
        **_precision(strategy),
    }


def _largest_share(transformer: Transformer, strategy: Strategy) -> int:
    """Parameters of the rank that holds most, at the very most."""
    layers = -(-transformer.num_layers // strategy.pipeline_parallel)
    ends = 2 * transformer.embedding_parameters + transformer.seq_length * transformer.hidden_size
    cut = (layers * transformer.layer_parameters + ends) // strategy.tensor_parallel
    return cut + transformer.hidden_size * (transformer.seq_length + 8 * layers)


def _precision(strategy: Strategy) -> dict[str, Any]:
    if strategy.precision == "fp16":
        return {"fp16": {"enabled": True, "initial_scale_power": INITIAL_SCALE_POWER}}
    if strategy.precision == "fp32":
        return {}
    # Without ZeRO, DeepSpeed's bf16 optimizer takes gradients in bf16 alone.
    data_types = {"grad_accum_dtype": "bf16"} if strategy.zero_stage == 0 else {}
    return {"bf16": {"enabled": True}, "data_types": data_types}
