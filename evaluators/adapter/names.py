"""The names that expressions may mention: of a strategy, a model, a machine, and one start."""

from __future__ import annotations

from collections.abc import Mapping

from evaluators.adapter.expression import Value
from search_spaces.dimensions import ACCUMULATION, DIMENSIONS, DIVIDING
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

DERIVED = ("world_size", "data_parallel", "global_batch_size")
OF_MODEL = (
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "num_query_groups",
    "head_width",
    "vocab_size",
    "seq_length",
    "gated_mlp",
    "tied_embeddings",
)
OF_MACHINE = ("gpus_per_node", "memory_gib")
OF_START = ("python", "out", "folder", "iterations", "seed")
"""The interpreter on the nodes; the folder of the start; that of the adapter's ranks; how many
iterations to train; a seed."""

OF_FIRST = ("first_gradient_accumulation_steps", "first_global_batch_size")
OF_ONE_START = (*OF_FIRST, "first_iterations", "last_iterations")
"""Of a start that measures two GAS values: the smaller one, which is run first, its batch, and how
many iterations each is for. All other names are of the larger one, `iterations` of both."""

OF_STRATEGY = (*DIMENSIONS, *DERIVED)
EVERYWHERE = (*OF_STRATEGY, *OF_MODEL, *OF_MACHINE)
"""What is known of a strategy before anything runs."""
AT_START = (*EVERYWHERE, *OF_START)

_REPLICAS = (*DIVIDING, "num_nodes")
DECIDED_BY: Mapping[str, tuple[str, ...]] = {
    "world_size": ("num_nodes",),
    "data_parallel": _REPLICAS,
    "global_batch_size": ("micro_batch_size", ACCUMULATION, *_REPLICAS),
}
"""The dimensions that a derived value follows from."""

MENTIONED_BY: Mapping[str, tuple[str, ...]] = {
    "world_size": (),
    "data_parallel": (),
    "global_batch_size": (ACCUMULATION,),
}
"""The dimensions that a trainer varies which is told a derived value: of a number of replicas, it
cannot know how the other ranks are used."""


def strategy_names(
    transformer: Transformer, machine: Machine, strategy: Strategy
) -> dict[str, Value]:
    """Return the values of `EVERYWHERE`."""
    gpus = machine.gpus_per_node
    return {
        **strategy.as_dict(),
        "world_size": strategy.world_size(gpus),
        "data_parallel": strategy.data_parallel(gpus),
        "global_batch_size": strategy.global_batch_size(gpus),
        **{name: getattr(transformer, name) for name in OF_MODEL},
        **{name: getattr(machine, name) for name in OF_MACHINE},
    }


def first_names(machine: Machine, first: Strategy) -> dict[str, Value]:
    """Return the values of `OF_FIRST`, where this strategy has the first GAS."""
    return {
        "first_gradient_accumulation_steps": first.gradient_accumulation_steps,
        "first_global_batch_size": first.global_batch_size(machine.gpus_per_node),
    }
