"""The rules that only warn: such a strategy runs, but slower than it looks, or not everywhere."""

from __future__ import annotations

import numpy as np

from search_spaces.lattice import Lattice, Mask
from search_spaces.rule import Rule
from search_spaces.transformer import Transformer

EXPERTS_WITHIN_NODE = "experts_within_node"


def uneven_stages(lattice: Lattice, transformer: Transformer) -> Mask:
    layers, stages = transformer.num_layers, lattice["pipeline_parallel"]
    return np.asarray((layers % stages != 0) & (stages <= layers))


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
        demand="pipeline_parallel divides the layers, so that no stage waits for a fuller one",
        severity="warn",
        broken=lambda lattice, to: uneven_stages(lattice, to.transformer),
        reason=lambda s, to: (
            f"{to.transformer.num_layers} layers in {s.pipeline_parallel} stages are uneven: the "
            f"fullest has {-(-to.transformer.num_layers // s.pipeline_parallel)}, and the others "
            "wait for it; not every program can do it"
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
            f"{s.tensor_parallel}: it has to be padded"
        ),
    ),
    Rule(
        name="fp16_without_zero",
        demand="fp16 goes with ZeRO stage 1 or more, in DeepSpeed",
        severity="warn",
        broken=lambda lattice, to: (
            (lattice["precision"] == "fp16") & (lattice["zero_stage"] == 0) & to.program.deepspeed
        ),
        reason=lambda *_: (
            "fp16 with zero_stage 0 gave a wrong loss in DeepSpeed 0.19.8: compare it before use"
        ),
    ),
)
