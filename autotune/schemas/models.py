"""What a model needs before any layout is chosen."""

from __future__ import annotations

from autotune.schemas.wire import Wire
from search_spaces.transformer import Transformer


class ModelNeeds(Wire):
    """The memory and the floating-point operations of a training, independent of its layout.

    Memory is in GB (10^9 bytes) over all GPUs of one replica, before ZeRO shards anything, and
    counts no activations. It counts parameters of multi-token prediction, too.
    """

    model: Transformer
    """The model."""
    parameters: int
    """Parameters but those of multi-token prediction; a tied output layer counts once."""
    active_parameters: int
    """Parameters that one token passes: all but the experts to which it is not routed."""
    parameters_gb: float
    """Weights, 6 bytes per parameter: a 16-bit copy and an fp32 copy, GB."""
    gradients_gb: float
    """Gradients, 4 bytes per parameter, GB."""
    optimizer_gb: float
    """Adam's two fp32 moments, 8 bytes per parameter, GB."""
    memory_gb: float
    """The sum of the three, 18 bytes per parameter, GB."""
    tokens: float
    """Tokens of the training."""
    assumed: bool
    """Whether `tokens` is the assumption of 20 per parameter."""
    flops_6n: float
    """FLOPs of the training by the rule of thumb: 6 per active parameter and token."""
    model_flops: float
    """FLOPs of the training by the model's own count: every matrix product, the whole score matrix
    of attention, no recomputation."""
