"""Built-in models, and the resources for training one."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.schemas.models import ModelNeeds
from search_spaces.transformer import Transformer
from server.cli.tables.elements import facts, figure, headed, model_line, parameters


def models(transformers: Sequence[Transformer]) -> Table:
    """Return one row per model."""
    figures = ("parameters", "active", "layers", "hidden", "heads", "query groups", "seq")
    table = headed("model", *(f">{name}" for name in figures))
    for item in transformers:
        table.add_row(
            item.name,
            parameters(item.parameters),
            parameters(item.active_parameters),
            str(item.num_layers),
            str(item.hidden_size),
            str(item.num_attention_heads),
            str(item.num_query_groups),
            str(item.seq_length),
        )
    return table


def needs(answer: ModelNeeds) -> RenderableType:
    """Return one model's memory table and the FLOPs of its training."""
    memory = headed("memory of the states", ">bytes per parameter", ">GB")
    for name, gb in (
        ("weights (16-bit and fp32 copy)", answer.parameters_gb),
        ("gradients", answer.gradients_gb),
        ("optimizer states", answer.optimizer_gb),
        ("all", answer.memory_gb),
    ):
        memory.add_row(name, f"{1e9 * gb / answer.parameters:.0f}", figure(gb))
    assumed = " (assumed: 20 per parameter; --tokens changes it)" if answer.assumed else ""
    routed = answer.active_parameters < answer.parameters
    of_active = ", N active parameters" if routed else ""
    training = facts(
        [
            ("tokens", f"{parameters(answer.tokens)}{assumed}"),
            ("6 N per token", f"{answer.flops_6n:.3g} FLOPs{of_active}"),
            ("model FLOPs", f"{answer.model_flops:.3g} FLOPs, attention counted, no recomputation"),
        ],
        title="a training",
    )
    counts = "GB are 10^9 bytes of one replica, before ZeRO shards them; activations come on top."
    return Group(Text(model_line(answer.model)), memory, Text(counts, style="dim"), training)
