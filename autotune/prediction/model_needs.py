"""Memory and FLOPs of training a model, independent of its layout."""

from __future__ import annotations

from autotune.cost_model import state_bytes_per_parameter
from autotune.schemas.models import ModelNeeds
from autotune.schemas.resolution import transformer_of
from autotune.schemas.shapes import ModelChoice

BYTES_PER_GB = 1e9

TOKENS_PER_PARAMETER = 20.0
"""Assumed where a user says nothing, as by the Frontier study (Dash et al. 2023, arXiv:2312.12705):
with so many a model of a given training cost is best (Hoffmann et al. 2022, arXiv:2203.15556)."""


def model_needs(model: ModelChoice, tokens: float | None = None) -> ModelNeeds:
    """Return the memory and FLOPs of training the model, before a layout divides them.

    The bytes are those of the Frontier study's memory table, in mixed precision with Adam. `6 N`
    FLOPs per token is the rule of thumb of Kaplan et al. 2020 (arXiv:2001.08361).

    Args:
        tokens: of the training; 20 per parameter by default.

    Raises:
        InvalidInput, InvalidInputs: field `model`.
    """
    transformer = transformer_of(model)
    parameters = transformer.parameters
    per_parameter = state_bytes_per_parameter()
    gb = transformer.trained_parameters / BYTES_PER_GB
    trained = tokens or TOKENS_PER_PARAMETER * parameters
    return ModelNeeds(
        model=transformer,
        parameters=parameters,
        active_parameters=transformer.active_parameters,
        parameters_gb=float(per_parameter.parameters) * gb,
        gradients_gb=float(per_parameter.gradients) * gb,
        optimizer_gb=float(per_parameter.optimizer) * gb,
        memory_gb=float(per_parameter.total) * gb,
        tokens=trained,
        assumed=tokens is None,
        flops_6n=6.0 * transformer.active_parameters * trained,
        model_flops=transformer.model_flops(1) / transformer.seq_length * trained,
    )
