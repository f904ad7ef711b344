"""The strategies that an adapter's trainer supports, for a search space."""

from __future__ import annotations

from dataclasses import dataclass

from evaluators.adapter.adapter import Adapter, AdapterRefusal
from evaluators.adapter.expression import ExpressionFault, parse
from evaluators.adapter.rendering import names_of
from search_spaces.dimensions import DIMENSIONS, MEMORY_FOR_TIME, NEUTRAL
from search_spaces.machine import Machine
from search_spaces.program import ProgramCapabilities, undeclared
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class StrategyRefusal:
    """A refusal of an adapter, as a rule of a space."""

    refusal: AdapterRefusal
    adapter: Adapter
    dimensions: tuple[str, ...]

    @property
    def because(self) -> str:
        return f"{self.adapter.name} cannot run it: {self.refusal.because}"

    def refuses(self, strategy: Strategy, transformer: Transformer, machine: Machine) -> bool:
        """Return whether it applies to a strategy; also if it cannot be evaluated."""
        try:
            names = names_of(self.adapter, transformer, machine, strategy)
            return bool(parse(self.refusal.when).value(names))
        except (ExpressionFault, ZeroDivisionError):
            return True


WIDER_HEADS = AdapterRefusal(
    when="head_width * num_attention_heads != hidden_size",
    because="its adapter names the number of heads and not their width, `head_width`",
)


def capabilities_of_adapter(adapter: Adapter) -> ProgramCapabilities:
    """Return the trainer's capabilities: it varies the dimensions that its adapter mentions."""
    fixed = tuple(
        (name, adapter.fixed.get(name, NEUTRAL.get(name)))
        for name in DIMENSIONS
        if name not in adapter.varied
    )
    names_heads = "num_attention_heads" in adapter.names
    untold = () if not names_heads or "head_width" in adapter.names else (WIDER_HEADS,)
    return ProgramCapabilities(
        name=adapter.name,
        # Vendor-tuned trainers are built on Megatron Core.
        repeats_query_groups=adapter.tuning == "vendor",
        experts_need_sequence_parallel=adapter.tuning == "vendor",
        deepspeed=False,
        fixed=fixed,
        refusals=tuple(
            StrategyRefusal(refusal=refusal, adapter=adapter, dimensions=adapter.decides(refusal))
            for refusal in (*adapter.refuse, *untold)
        )
        + undeclared(adapter.name, adapter.values),
        tuning=adapter.tuning,
        states=adapter.states,
        own=adapter.dimensions,
        trains=adapter.trains,
        special=tuple(adapter.values.items()),
        searched=tuple(name for name in MEMORY_FOR_TIME if name in adapter.varied),
    )
