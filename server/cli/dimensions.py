"""The dimensions of a strategy as options, each declared once: a single value, or several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from search_spaces.dimensions import DIMENSIONS, MEMORY_FOR_TIME, TABLE, setting_text
from search_spaces.errors import InvalidInput
from search_spaces.machine import default_precision
from server.cli.options import OptionGroup, chosen, option

if TYPE_CHECKING:
    from autotune.schemas.shapes import StrategyShape
    from autotune.schemas.spaces import SpaceSpec
    from search_spaces.machine import Machine

ONE_OF_EACH: Mapping[str, int] = {d.name: 1 for d in TABLE if d.default is None}
"""Values of dimensions that have no default, if none is given."""


DimensionTexts: Any = make_dataclass(
    "DimensionTexts",
    [
        (dimension.name, str | None, option(dimension.option, dimension.sentence))
        for dimension in TABLE
    ],
    bases=(OptionGroup,),
    frozen=True,
    kw_only=True,
)


@dataclass(frozen=True, kw_only=True)
class DimensionOptions(DimensionTexts, OptionGroup):  # type: ignore[misc]
    """The text of each dimension's option."""

    settings: list[str] | None = option(
        "--set",
        "A dimension that only the trainer has: overlap=on,off. Repeatable.",
        metavar="NAME=VALUES",
    )

    @property
    def settings_said(self) -> dict[str, str] | None:
        """Return the texts of trainer-defined dimensions, by name; raises InvalidInput."""
        if not self.settings:
            return None
        said: dict[str, str] = {}
        for text in self.settings:
            name, equals, values = (part.strip() for part in text.partition("="))
            if not equals or not name or not values or name in said:
                reason = "not a dimension with its values, each once"
                raise InvalidInput("settings", text, reason, valid="overlap=on,off and the like")
            said[name] = values
        return said


@dataclass(frozen=True, kw_only=True)
class StrategyOptions(DimensionOptions):
    """One value for each dimension."""

    PANEL: ClassVar[str] = "The strategy: one value of each dimension"
    DEFAULTS: ClassVar[Mapping[str, object]] = {
        d.name: 1 if d.default is None else setting_text(d.default) for d in TABLE
    }

    def shape(self) -> StrategyShape:
        """Return the strategy; raises InvalidInput for several values of a dimension."""
        from autotune.schemas.shapes import StrategyShape
        from autotune.schemas.spaces import Range, SpaceSpec
        from autotune.validation import validated

        texts = chosen(
            **{name: getattr(self, name) for name in DIMENSIONS}, settings=self.settings_said
        )
        read = validated(SpaceSpec, texts)
        values = {name: getattr(read, name) for name in texts}
        own = values.get("settings", {}).items()
        for name, value in (*values.items(), *own):
            if isinstance(value, Range | list) or value == "auto":
                reason = "one strategy has one value of each dimension"
                valid = "one value; `autotune sweep` ranks the strategies of many"
                raise InvalidInput(name, texts.get(name, value), reason, valid=valid)
        return validated(StrategyShape, {**ONE_OF_EACH, **values})


@dataclass(frozen=True, kw_only=True)
class PredictedOptions(StrategyOptions):
    """A strategy by its dimensions, or by its nodes and its batch."""

    DEFAULTS: ClassVar[Mapping[str, object]] = {
        **StrategyOptions.DEFAULTS,
        "num_nodes": "--nodes, else 1",
        "gradient_accumulation_steps": "what --global-batch asks for, else 1",
        "precision": "bf16, or what the machine has instead",
    }

    nodes: int | None = option("--nodes", "Same as --num-nodes.")
    global_batch_size: int | None = option("--global-batch", "Samples per step; sets GAS.")

    def on(self, machine: Machine) -> StrategyShape:
        """Return the strategy, completed for a machine as in a space of it.

        Raises:
            InvalidInput, InvalidInputs: an invalid value, or two that contradict each other.
        """

        shape = self.shape()
        completed = shape.model_copy(
            update={
                "num_nodes": self._nodes(shape),
                "precision": shape.precision if self.precision else default_precision(machine),
            }
        )
        if self.global_batch_size is None:
            return completed
        gas = self._accumulation(completed, machine)
        return completed.model_copy(update={"gradient_accumulation_steps": gas})

    def _nodes(self, shape: StrategyShape) -> int:
        if self.nodes is None:
            return int(shape.num_nodes)
        if self.nodes < 1 or (self.num_nodes is not None and shape.num_nodes != self.nodes):
            said = f"num_nodes is {shape.num_nodes}" if self.num_nodes else "a strategy needs one"
            raise InvalidInput("nodes", self.nodes, said, valid="1 or more, by one of the two")
        return self.nodes

    def _accumulation(self, shape: StrategyShape, machine: Machine) -> int:
        """Return the GAS for the global batch; the strategy's own if the number of replicas is not
        an integer, which a rule reports."""
        from autotune.resolution import strategy_of

        groups = strategy_of(shape).groups(machine.gpus_per_node)
        replicas = int(groups.data_parallel)
        if groups.left_over or not replicas:
            return int(shape.gradient_accumulation_steps)
        micro_batches = shape.micro_batch_size * replicas
        batch = self.global_batch_size or 0
        gas, left = divmod(batch, micro_batches)
        if left or gas < 1:
            reason = (
                f"micro_batch_size {shape.micro_batch_size} x data_parallel {replicas} = "
                f"{micro_batches} does not divide it"
            )
            valid = f"a multiple of {micro_batches}"
            raise InvalidInput("global_batch_size", batch, reason, valid=valid)
        if self.gradient_accumulation_steps and shape.gradient_accumulation_steps != gas:
            reason = f"with it gradient_accumulation_steps is {gas}"
            raise InvalidInput("global_batch_size", batch, reason, valid="one of the two options")
        return int(gas)


SEARCHED = "on GPUs where no layout is named, or with an adapter that mentions it"


@dataclass(frozen=True, kw_only=True)
class SpaceOptions(DimensionOptions):
    """The values to try in each dimension."""

    PANEL: ClassVar[str] = "What may be tried: auto, 4, 1,2,4, 4..20 or 4..20 step 4 (4:20:4)"
    DEFAULTS: ClassVar[Mapping[str, object]] = {
        d.name: f"{setting_text(d.default)}; others {SEARCHED}"
        for d in TABLE
        if d.name in MEMORY_FOR_TIME and d.default is not None
    }

    preset: str | None = option("--space", "A ready space, such as table-v.")
    global_batch_size: str | None = option(
        "--global-batch", "Samples per step: 640, 512..1024, 512.. or ..1024."
    )

    def spec(self) -> SpaceSpec:
        """Return the space in the service's form; raises InvalidInput(s)."""
        from autotune.schemas.spaces import SpaceSpec
        from autotune.validation import validated

        return validated(
            SpaceSpec,
            chosen(
                preset=self.preset,
                global_batch_size=self.global_batch_size,
                settings=self.settings_said,
                **{name: getattr(self, name) for name in DIMENSIONS},
            ),
        )


def options_of(strategy: StrategyShape, machine: Machine) -> str:
    """Return the options with which `PredictedOptions` are this strategy on this machine."""
    from autotune.schemas.shapes import StrategyShape as Shape

    return options_between(Shape(**ONE_OF_EACH, precision=default_precision(machine)), strategy)


def options_between(strategy: StrategyShape, other: StrategyShape) -> str:
    """Return the options that change one strategy into another: `--pp 16 --gas 20`."""
    flags = DimensionOptions.flags()
    words = [
        f"{flags[name]} {setting_text(getattr(other, name))}"
        for name in DIMENSIONS
        if getattr(other, name) != getattr(strategy, name)
    ]
    own = [f"--set {n}={setting_text(v)}" for n, v in other.settings if v != strategy.value(n)]
    return " ".join([*words, *own])
