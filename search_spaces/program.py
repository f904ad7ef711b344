"""Capabilities of trainers, which decide which strategies are legal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from search_spaces.dimensions import BY_NAME, NEUTRAL, OF_EXPERTS, Scalar
from search_spaces.errors import InvalidInput
from search_spaces.lattice import Lattice, Mask
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import ActivationCheckpointing, LayerFeature, Transformer

Tuning = Literal["vendor", "usual", "plain"]
"""How far a program's kernels and collectives are tuned for the GPU: by its vendor (Megatron-LM,
Megatron-Bridge, NeMo), as is usual (Megatron-DeepSpeed, or not known), or hardly: PyTorch's own
(torchtitan, NeMo Automodel)."""


FEATURE_WORDS: Mapping[LayerFeature, str] = {
    "experts": "experts",
    "interleaved_experts": "dense layers among those with experts",
    "latent_experts": "experts behind a projection",
    "latent_attention": "latent attention",
    "sparse_attention": "sparse attention",
    "linear_attention": "linear attention",
    "attention_gate": "gated attention",
    "window": "windowed attention",
    "mamba": "Mamba layers",
    "mamba_mlp": "Mamba layers with an MLP each",
    "mtp": "multi-token prediction",
}
"""What layers may have in addition to GPT's and Llama's, as sentences have it."""


@dataclass(frozen=True, kw_only=True)
class StateWidths:
    """What a trainer keeps and how it runs, where programs differ: bytes for each parameter of
    weights, gradients and Adam's states, of activations and logits, and how experts are run.

    Attributes:
        fp8_weight_bytes: of a weight that products take in 8 bits with one scale for a tensor: 1
            where it is gathered in them.
        gradient_bytes: 2 where gradients stay in 16 bits, 4 where they are accumulated in fp32;
            None: not known, trials decide.
        gated_activation_bytes: for each token and unit of a gated MLP's width, in 16 bits: 6 where
            one kernel computes the activation (the two products and the result are kept), 8 where
            SiLU keeps its result, too, 10 where the other product is copied.
        bf16_gradient_bytes: of a gradient in bf16 below ZeRO 2, where it is another; 0: it is not.
            DeepSpeed keeps 6, an fp32 copy and the 16-bit one.
        master_bytes: of the master weight in mixed precision.
        moment_bytes: of each of the two moments.
        selective_by_operation: 1 where selective checkpointing keeps every second matrix product
            (torchtitan's option "op"), 0 where it recomputes the attention (Megatron-LM).
        loss_tokens: tokens whose logits are kept at once by a loss in chunks; 0: all.
        offloaded_inputs: share of the inputs of recomputed layers that are kept by the host.
        offloaded_states: share of weights, gradients and optimizer states that are kept by the
            host; a layer's weights are on the GPU while it is computed.
        recomputed_layers: layers of each virtual stage that full checkpointing recomputes, the
            first ones (Megatron-LM's `--recompute-method block`); 0: all.
        mlp_tokens: tokens of a part of the sequence, if MLPs take one part after the other; 0: all.
        vendor_attention: 1 where attention runs by the vendor's kernel (cuDNN on Hopper).
        expert_loop: 1 where each expert is a module that runs on its own, 0 where one kernel runs
            all; None: not known.
        waits_for_counts: 0 where the dispatcher's host does not wait for the counts of tokens
            (HybridEP, DeepEP), 1 where it does (all-to-all).
        cuda_graphs: share of a step's kernels that CUDA graphs launch.
        uneven_routing: 0 where balance is forced, 2 where routing is natural, 1: not known.
        fused_experts: 1 where the grouped products of experts apply the activation and cast its
            result to 8 bits (Transformer Engine from 2.14 on, on Blackwell).
        keeps_gathered: 1 where ZeRO 3 keeps the weights of a pipeline's stage gathered during a
            step (torchtitan's default), 0 where each micro-batch gathers them.
        longer_stages_first: 1 where the first of unequal stages have one layer more, as DeepSpeed
            cuts a model by the type of its layers, 0 where the shorter stand at the ends.
    """

    fp8_weight_bytes: float = 2.0
    gradient_bytes: float | None = None
    gated_activation_bytes: float = 6.0
    bf16_gradient_bytes: float = 0.0
    master_bytes: float = 4.0
    moment_bytes: float = 4.0
    selective_by_operation: float = 0.0
    loss_tokens: float = 0.0
    offloaded_inputs: float = 0.0
    offloaded_states: float = 0.0
    mlp_tokens: float = 0.0
    recomputed_layers: float = 0.0
    vendor_attention: float = 0.0
    expert_loop: float | None = None
    waits_for_counts: float = 1.0
    cuda_graphs: float = 0.0
    uneven_routing: float = 1.0
    fused_experts: float = 0.0
    keeps_gathered: float = 0.0
    longer_stages_first: float = 0.0


USUAL_STATES = StateWidths()
"""Of mixed precision with Adam and a fused activation; of gradients it is not known."""


class ProgramRefusal(Protocol):
    """Strategies that one trainer cannot run."""

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Those that decide it."""

    @property
    def because(self) -> str:
        """The reason, as a sentence."""

    def refuses(self, strategy: Strategy, transformer: Transformer, machine: Machine) -> bool:
        """Whether it cannot run this strategy."""


@dataclass(frozen=True, kw_only=True)
class DimensionRefusal(ABC):
    """Strategies with values of one dimension that a trainer does not have, for no model and on no
    machine."""

    program: str
    dimension: str

    @property
    def dimensions(self) -> tuple[str, ...]:
        return (self.dimension,)

    @property
    def words(self) -> str:
        definition = BY_NAME[self.dimension]
        return definition.words or definition.label.lower()

    @property
    @abstractmethod
    def because(self) -> str: ...

    @abstractmethod
    def meets(self, strategy: Strategy) -> bool:
        """Return whether a strategy has such a value."""

    def refuses(
        self,
        strategy: Strategy,
        transformer: Transformer,  # noqa: ARG002
        machine: Machine,  # noqa: ARG002
    ) -> bool:
        return self.meets(strategy)


@dataclass(frozen=True, kw_only=True)
class LackingRefusal(DimensionRefusal):
    """Strategies that use a dimension that a trainer lacks."""

    @property
    def because(self) -> str:
        neutral = str(NEUTRAL[self.dimension]).lower()
        return f"{self.program} has no {self.words}: {self.dimension} must be {neutral}"

    def meets(self, strategy: Strategy) -> bool:
        return bool(strategy.value(self.dimension) != NEUTRAL[self.dimension])


@dataclass(frozen=True, kw_only=True)
class UndeclaredRefusal(DimensionRefusal):
    """Strategies with a value that only trainers have which declare it."""

    declared: tuple[Scalar, ...] = ()

    @property
    def because(self) -> str:
        valid = [str(each) for each in BY_NAME[self.dimension].values if not self._lacks(each)]
        return f"{self.program} has no other {self.words} than {', '.join(valid)}"

    def meets(self, strategy: Strategy) -> bool:
        return self._lacks(strategy.value(self.dimension))

    def _lacks(self, value: Scalar) -> bool:
        return value in BY_NAME[self.dimension].special and value not in self.declared


def undeclared(
    program: str, declared: Mapping[str, tuple[Scalar, ...]]
) -> tuple[UndeclaredRefusal, ...]:
    """Return a refusal for each dimension with values that a trainer has to declare."""
    return tuple(
        UndeclaredRefusal(program=program, dimension=name, declared=declared.get(name, ()))
        for name, dimension in BY_NAME.items()
        if dimension.special
    )


def lacking(program: str, varied: Collection[str]) -> tuple[DimensionRefusal, ...]:
    """Return a refusal for each optional dimension that a trainer does not vary, and for the values
    that it would have to declare."""
    absent = (
        LackingRefusal(program=program, dimension=name) for name in NEUTRAL if name not in varied
    )
    return (*absent, *undeclared(program, {}))


def untrained(
    transformer: Transformer, *, program: str, trains: Collection[LayerFeature] = ()
) -> str | None:
    """Return why a program is not known to train a model, as a sentence; None where it is.

    Args:
        trains: what layers may have there in addition to GPT's and Llama's.
    """
    lacked = [FEATURE_WORDS[each] for each in transformer.features if each not in trains]
    if not lacked:
        return None
    *others, last = lacked
    listed = f"{', '.join(others)} or {last}" if others else last
    return f"{program} is not known to train {listed}, which {transformer.name} has"


@dataclass(frozen=True, kw_only=True)
class OwnDimension:
    """A dimension that only one trainer has, without formulas.

    Attributes:
        values: two or more, of one type, in their order; the first is what is usual.
        searched: whether a campaign tries all values unless it names some. One that is not
            searched has its usual value, and strategies do not mention it, unless a campaign does.
    """

    name: str
    values: tuple[Scalar, ...]
    searched: bool = True

    def chosen(self, choice: object) -> tuple[Scalar, ...]:
        """Return the values that a choice means, in the order of `values`: `"auto"` is all of them,
        and a text is what it says.

        Raises:
            InvalidInput: named by the dimension, for a value that it does not have.
        """
        if choice == "auto":
            return self.values
        listed = choice if isinstance(choice, list | tuple) else [choice]
        means = {_written(value): value for value in self.values}
        for each in listed:
            if not isinstance(each, bool | int | float | str) or _written(each) not in means:
                valid = f"{', '.join(means)}, or auto"
                raise InvalidInput(self.name, each, "not a value of this dimension", valid=valid)
        wanted = {_written(each) for each in listed if isinstance(each, bool | int | float | str)}
        if not wanted:
            raise InvalidInput(self.name, choice, "an empty list", valid=", ".join(means))
        return tuple(value for text, value in means.items() if text in wanted)


def _written(value: Scalar) -> str:
    text = str(value).strip().lower()
    if isinstance(value, float) and value.is_integer():
        text = str(int(value))
    return {"on": "true", "yes": "true", "off": "false", "no": "false"}.get(text, text)


@dataclass(frozen=True, kw_only=True)
class ProgramCapabilities:
    """Capabilities of one trainer.

    Attributes:
        name: as sentences have it.
        activation_checkpointing: the kinds that it has, of none, selective and full.
        special: dimension -> the values that it has and not every trainer may have
            (`Dimension.special`); automatic values have no others of them.
        repeats_query_groups: whether tensor_parallel may be a multiple of the query groups, each of
            which several GPUs hold then, as in Megatron Core.
        experts_need_sequence_parallel: whether it trains experts with tensor parallelism only where
            sequence parallelism is on, too, as Megatron Core.
        fixed: the dimensions that it does not vary, with the value that each of them has; None:
            what is usual on the machine.
        refusals: what else it cannot run.
        tuning: how far it is tuned, for what is believed of its speed before any trial.
        states: the bytes that it keeps of each parameter.
        own: dimensions that it has and others have not.
        searched: those of activation_checkpointing and sequence_parallel that are searched unless
            a choice names them, on CPUs and where layouts are named, too.
        trains: what the layers of a model may have in addition to GPT's and Llama's.
    """

    name: str
    activation_checkpointing: tuple[ActivationCheckpointing, ...] = ("none", "selective", "full")
    repeats_query_groups: bool = True
    experts_need_sequence_parallel: bool = False
    fixed: tuple[tuple[str, Scalar | None], ...] = ()
    refusals: tuple[ProgramRefusal, ...] = ()
    tuning: Tuning = "usual"
    states: StateWidths = USUAL_STATES
    own: tuple[OwnDimension, ...] = ()
    searched: tuple[str, ...] = ()
    trains: tuple[LayerFeature, ...] = ()
    special: tuple[tuple[str, tuple[Scalar, ...]], ...] = ()

    @cached_property
    def _unvaried(self) -> frozenset[str]:
        lacked = {each.dimension for each in self.refusals if isinstance(each, LackingRefusal)}
        if "expert_parallel" in lacked:
            lacked.add("expert_tensor_parallel")
        return frozenset(lacked | dict(self.fixed).keys())

    @property
    def splits_experts_as_layers(self) -> bool:
        name = "expert_tensor_parallel"
        return not self.varies(name) and dict(self.fixed).get(name) is None

    def ties_sequence_parallel(self, transformer: Transformer) -> bool:
        return self.experts_need_sequence_parallel and transformer.experts is not None

    @property
    def is_named(self) -> bool:
        return self.name != UNNAMED

    def varies(self, dimension: str) -> bool:
        return dimension not in self._unvaried

    @property
    def divides_experts_unseen(self) -> bool:
        return any(each.name in OF_EXPERTS for each in self.own)

    def declares(self, dimension: str) -> tuple[Scalar, ...]:
        return dict(self.special).get(dimension, ())

    def untrained(self, transformer: Transformer) -> str | None:
        return untrained(transformer, program=self.name, trains=self.trains)


UNNAMED = "some program"
ANY_PROGRAM = ProgramCapabilities(name=UNNAMED, trains=tuple(FEATURE_WORDS))
"""Where it is not known, or not chosen yet, what will train: whatever one of them can do."""


def program_masks(
    lattice: Lattice, transformer: Transformer, machine: Machine, program: ProgramCapabilities
) -> dict[str, Mask]:
    """Return reason -> mask that broadcasts to the shape of the lattice, true where the trainer
    refuses a strategy for it.

    Each refusal is checked once for every combination of the values that decide it. Strategies that
    no program can run are left to other rules.
    """
    masks: dict[str, Mask] = {}
    for refusal in program.refusals:
        refused = _refused(refusal, lattice, transformer, machine)
        masks[refusal.because] = masks.get(refusal.because, False) | refused
    return masks


def _refused(
    refusal: ProgramRefusal, lattice: Lattice, transformer: Transformer, machine: Machine
) -> Mask:
    # A dimension that no strategy mentions has the same value in all of them.
    mentioned = [lattice[name] for name in refusal.dimensions if name in lattice.columns]
    impossible, *columns = np.broadcast_arrays(lattice.uneven_world, *map(_places, mentioned))
    possible = np.flatnonzero(~impossible)
    keys = np.zeros(len(possible), dtype=np.int64)
    for column in columns:
        places = column.reshape(-1)[possible]
        keys = keys * (places.max(initial=0) + 1) + places
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    answers = [
        refusal.refuses(lattice.strategy(row), transformer, machine)
        for row in zip(
            *(places.tolist() for places in np.unravel_index(possible[first], impossible.shape)),
            strict=True,
        )
    ]
    refused = np.zeros(impossible.size, dtype=np.bool_)
    refused[possible] = np.array(answers, dtype=np.bool_)[which]
    return refused.reshape(impossible.shape)


def _places(column: NDArray[Any]) -> NDArray[np.int64]:
    values = column.ravel().tolist()
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return np.array([places[value] for value in values], dtype=np.int64).reshape(column.shape)
