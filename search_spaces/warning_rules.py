"""The rules that only warn: such a strategy runs, but slower than it looks, or not everywhere."""

from __future__ import annotations

import numpy as np

from search_spaces.lattice import Lattice, Mask
from search_spaces.rule import Rule
from search_spaces.stages import LAYERS_OF_PREDICTION, stage_layers
from search_spaces.transformer import Transformer

EXPERTS_WITHIN_NODE = "experts_within_node"


def _fullest_stage(stages: int, virtual_stages: int, transformer: Transformer) -> int:
    layers, mtp = transformer.num_layers, transformer.mtp_layers
    return max(stage_layers(layers, stages, virtual_stages=virtual_stages, mtp_layers=mtp))


def uneven_stages(lattice: Lattice, transformer: Transformer) -> Mask:
    """Return where stages lack more layers than the ends make up for, which have the embedding, the
    logits and the layers of multi-token prediction."""
    ends = 2 + LAYERS_OF_PREDICTION * transformer.mtp_layers
    stages, virtual = np.broadcast_arrays(lattice["pipeline_parallel"], lattice["virtual_stages"])
    uneven = np.zeros(stages.shape, dtype=np.bool_)
    for pair in set(zip(stages.ravel().tolist(), virtual.ravel().tolist(), strict=True)):
        missing = pair[0] * _fullest_stage(*pair, transformer) - transformer.num_layers
        if pair[0] * pair[1] <= transformer.num_layers and missing > ends:
            uneven |= (stages == pair[0]) & (virtual == pair[1])
    return uneven


WARNING = (
    Rule(
        name="tensor_within_node",
        demand="tensor-parallel groups stay within a node, or a rack whose GPUs share fast links",
        severity="warn",
        # Ranks of one group lie side by side: a degree that does not divide the node straddles two.
        broken=lambda lattice, to: to.machine.fast_gpus % lattice["tensor_parallel"] != 0,
        reason=lambda s, to: (
            f"tensor_parallel {s.tensor_parallel} spans {to.machine.domain_words}: "
            "its all-reduces cross the network, which the Frontier study found slow"
        ),
    ),
    Rule(
        name=EXPERTS_WITHIN_NODE,
        demand=(
            "expert_tensor_parallel x expert_parallel GPUs fit in a node, or in a rack whose GPUs "
            "share fast links"
        ),
        severity="warn",
        broken=lambda lattice, to: (
            to.transformer.experts is not None and lattice.groups.expert_span > to.machine.fast_gpus
        ),
        reason=lambda s, to: (
            f"expert_parallel {s.expert_parallel} spreads the experts over "
            f"{s.groups(1).expert_span} GPUs, across {to.machine.domain_words}: tokens cross the "
            "network to their experts and back in every layer"
        ),
    ),
    Rule(
        name="even_stages",
        demand="all stages but the first and the last have the same number of layers",
        severity="warn",
        broken=lambda lattice, to: uneven_stages(lattice, to.transformer),
        reason=lambda s, to: (
            f"{to.transformer.num_layers} layers are uneven in {s.pipeline_parallel} stages: all "
            "wait for the fullest, with "
            f"{_fullest_stage(s.pipeline_parallel, s.virtual_stages, to.transformer)}"
        ),
    ),
    Rule(
        name="accumulation_fills_pipeline",
        demand="gradient_accumulation_steps is at least pipeline_parallel",
        severity="warn",
        broken=lambda lattice, _: (
            lattice["gradient_accumulation_steps"] < lattice["pipeline_parallel"]
        ),
        reason=lambda s, _: (
            f"gradient_accumulation_steps {s.gradient_accumulation_steps} is less than "
            f"pipeline_parallel {s.pipeline_parallel}: stages idle for most of an iteration"
        ),
    ),
    Rule(
        name="vocabulary_by_tensor",
        demand="tensor_parallel divides the vocabulary",
        severity="warn",
        broken=lambda lattice, to: to.transformer.vocab_size % lattice["tensor_parallel"] != 0,
        reason=lambda s, to: (
            f"a vocabulary of {to.transformer.vocab_size} is not divisible by tensor_parallel "
            f"{s.tensor_parallel}: it will be padded"
        ),
    ),
    Rule(
        name="sequence_parallel_needs_tensor",
        demand="sequence_parallel needs tensor_parallel above 1",
        severity="warn",
        broken=lambda lattice, _: lattice["sequence_parallel"] & (lattice["tensor_parallel"] == 1),
        reason=lambda *_: "sequence_parallel has no effect with tensor_parallel 1",
    ),
)
