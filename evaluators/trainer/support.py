"""Strategies that the bundled trainer cannot run, refused before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from autotune.schemas.trials import Routing
from evaluators.frameworks.deepspeed import KNOBS
from evaluators.trainer.libraries import gpu_count
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.program import (
    USUAL_STATES,
    DimensionRefusal,
    OwnDimension,
    ProgramCapabilities,
    lacking,
)
from search_spaces.stages import stage_layers
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class TrainerRefusal:
    """Strategies that the bundled trainer cannot run, as a rule of a space."""

    dimensions: tuple[str, ...]
    because: str
    meets: Callable[[Strategy], bool]

    def refuses(
        self,
        strategy: Strategy,
        transformer: Transformer,  # noqa: ARG002 (the trainer's limits hold for every model)
        machine: Machine,  # noqa: ARG002 (and on every machine)
    ) -> bool:
        return self.meets(strategy)


@dataclass(frozen=True, kw_only=True)
class ModelRefusal:
    """Strategies in which the bundled trainer cannot train some models, as a rule of a space."""

    dimensions: tuple[str, ...]
    because: str
    meets: Callable[[Strategy, Transformer], bool]

    def refuses(
        self,
        strategy: Strategy,
        transformer: Transformer,
        machine: Machine,  # noqa: ARG002 (they hold on every machine)
    ) -> bool:
        return self.meets(strategy, transformer)


VARIED = (
    "tensor_parallel",
    "pipeline_parallel",
    "micro_batch_size",
    "gradient_accumulation_steps",
    "zero_stage",
    "num_nodes",
    "activation_checkpointing",
    "flash_attention",
    "precision",
    "context_parallel",
    "expert_parallel",
)
"""The dimensions of which it supports several values."""

NAME = "the bundled trainer"

LEARNED: Routing = "learned"
BALANCED: Routing = "balanced"

ROUTING = OwnDimension(name="routing", values=(LEARNED, BALANCED), searched=False)
"""Which experts process a token: the router's choice, or each in turn."""


def routing_of(strategy: Strategy) -> Routing:
    return BALANCED if strategy.value(ROUTING.name) == BALANCED else LEARNED


Refusal: TypeAlias = TrainerRefusal | DimensionRefusal

ANYWHERE: tuple[Refusal, ...] = (
    *lacking(NAME, VARIED),
    # With DeepSpeed 0.19 the loss of fp16 under ZeRO 0 is off by 0.002 after four steps, and under
    # ZeRO 1 by 0.0001.
    TrainerRefusal(
        dimensions=("precision", "zero_stage"),
        because="the bundled trainer runs fp16 only with ZeRO 1 to 3, not with zero_stage 0",
        meets=lambda s: s.precision == "fp16" and s.zero_stage == 0,
    ),
    # DeepSpeed then uses the gradients of the experts of one tensor-parallel rank only.
    TrainerRefusal(
        dimensions=("zero_stage", "expert_parallel", "tensor_parallel"),
        because="DeepSpeed clips gradients by a wrong norm with zero_stage 3 if expert_parallel "
        "and tensor_parallel are both above 1",
        meets=lambda s: s.zero_stage == 3 and s.expert_parallel > 1 and s.tensor_parallel > 1,
    ),
    TrainerRefusal(
        dimensions=("zero_stage", "pipeline_parallel"),
        because="DeepSpeed runs ZeRO 2 and 3 only without a pipeline: pipeline_parallel must be 1",
        meets=lambda s: s.zero_stage >= 2 and s.pipeline_parallel > 1,
    ),
)
"""Refused on any node, so spaces exclude these strategies."""


def _a_stage_lacks_experts(strategy: Strategy, transformer: Transformer) -> bool:
    experts, stages = transformer.experts, strategy.pipeline_parallel
    if experts is None or stages == 1 or strategy.expert_parallel == 1:
        return False
    if strategy.zero_stage == 0 and strategy.precision == "fp32":
        return False
    return stage_layers(transformer.num_layers, stages)[0] <= experts.dense_layers


OF_MODELS = (
    ModelRefusal(
        dimensions=("pipeline_parallel", "expert_parallel", "zero_stage", "precision"),
        because="DeepSpeed hangs if expert_parallel is above 1 and the first pipeline stage has no "
        "experts, except with zero_stage 0 in fp32",
        meets=_a_stage_lacks_experts,
    ),
    ModelRefusal(
        dimensions=(ROUTING.name,),
        because="the model has no experts to route tokens to",
        meets=lambda s, t: t.experts is None and s.value(ROUTING.name) is not None,
    ),
    ModelRefusal(
        dimensions=("context_parallel", "tensor_parallel"),
        because="the bundled trainer exchanges sequences for query groups: context_parallel x "
        "tensor_parallel must divide them",
        meets=lambda s, t: t.num_query_groups % (s.context_parallel * s.tensor_parallel) != 0,
    ),
)
"""Refused for some models, on any node."""

HERE = TrainerRefusal(
    dimensions=("precision",),
    because="the bundled trainer runs fp16 only on GPUs, and this machine has none: use fp32 or "
    "bf16",
    meets=lambda s: s.precision == "fp16" and gpu_count() == 0,
)

CAPABILITIES = ProgramCapabilities(
    name=NAME,
    refusals=(*ANYWHERE, *OF_MODELS),
    repeats_query_groups=False,
    trains=("experts", "latent_attention", "window"),
    fixed=(("expert_tensor_parallel", None),),
    own=(*KNOBS, ROUTING),
    states=replace(USUAL_STATES, gated_activation_bytes=8),  # SiLU and product by own kernels
)

DECISIVE = tuple(dict.fromkeys(name for each in (*ANYWHERE, HERE) for name in each.dimensions))
"""The dimensions that these refusals depend on."""


def unsupported(strategy: Strategy) -> str | None:
    return _first((*ANYWHERE, HERE), strategy)


def unsupported_anywhere(strategy: Strategy) -> str | None:
    return _first(ANYWHERE, strategy)


def _first(refusals: Sequence[Refusal], strategy: Strategy) -> str | None:
    return next((each.because for each in refusals if each.meets(strategy)), None)


def unsupported_within(lattice: Lattice) -> str | None:
    return next(filter(None, map(unsupported, lattice.distinct(DECISIVE))), None)


def indivisible(transformer: Transformer, strategy: Strategy) -> str | None:
    """Return why `transformer` cannot be divided by `strategy`; None if it can."""
    if (untrained := CAPABILITIES.untrained(transformer)) is not None:
        return untrained
    ranks = strategy.tensor_parallel
    experts = transformer.experts
    cut = {
        "attention heads": transformer.num_attention_heads,
        "query groups": transformer.num_query_groups,
        "FFN columns": transformer.ffn_hidden_size,
        "columns of an expert": experts.ffn_hidden_size if experts else 0,
        "columns of the shared experts": experts.shared_ffn_hidden_size if experts else 0,
    }
    for what, count in cut.items():
        if count % ranks:
            return f"{count} {what} cannot be divided among {ranks} tensor-parallel ranks"
    if experts and strategy.expert_tensor_parallel != ranks:
        return f"it splits experts over the {ranks} tensor-parallel ranks, like all other weights"
    if experts and experts.num_experts % strategy.expert_parallel:
        ranks = strategy.expert_parallel
        return f"{experts.num_experts} experts cannot be divided among {ranks} ranks"
    if strategy.pipeline_parallel > transformer.num_layers:
        return f"{transformer.num_layers} layers cannot fill {strategy.pipeline_parallel} stages"
    return next((each.because for each in OF_MODELS if each.meets(strategy, transformer)), None)
