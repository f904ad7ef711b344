"""What the program that trains can do, as far as it decides which strategies may be tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import ActivationCheckpointing, Transformer


class ProgramRefusal(Protocol):
    """Strategies that a program cannot run, besides those that no program can."""

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Those that decide it."""

    @property
    def because(self) -> str:
        """The reason, as a sentence."""

    def refuses(self, strategy: Strategy, transformer: Transformer, machine: Machine) -> bool:
        """Whether it cannot run this strategy."""


@dataclass(frozen=True, kw_only=True)
class ProgramCapabilities:
    """What one program can do.

    Attributes:
        name: as sentences have it.
        uneven_stages: whether a pipeline's stages may have different numbers of layers.
        activation_checkpointing: the kinds that it has.
        sequence_parallel: whether it cuts norms and residuals over the tensor-parallel ranks.
        virtual_stages: whether it interleaves several stages of a pipeline on each rank.
        deepspeed: whether the limits of DeepSpeed's and Megatron-DeepSpeed's pipelines hold; where
            not, it names its own in `refusals`.
        fixed: the dimensions that it does not vary, with the value that each of them has; None:
            what is usual on the machine.
        refusals: what else it cannot run.
    """

    name: str
    uneven_stages: bool = True
    activation_checkpointing: tuple[ActivationCheckpointing, ...] = ("none", "selective", "full")
    sequence_parallel: bool = True
    virtual_stages: bool = True
    deepspeed: bool = True
    fixed: tuple[tuple[str, int | bool | str | None], ...] = ()
    refusals: tuple[ProgramRefusal, ...] = ()


ANY_PROGRAM = ProgramCapabilities(name="some program")
"""Where it is not known, or not chosen yet, what will train: whatever one of them can do."""


def stage_layers(num_layers: int, stages: int) -> tuple[int, ...]:
    """Return the layers of each pipeline stage, `stages` numbers that add up to `num_layers`.

    Where they differ, the first stages have one more, as DeepSpeed from 0.12.5 on cuts a model by
    the type of its layers: the last one has the logits to compute, and the cost model takes the
    first, which keeps the most micro-batches, to be the fullest.
    """
    each, more = divmod(num_layers, stages)
    return (each + 1,) * more + (each,) * (stages - more)
