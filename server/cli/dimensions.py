"""The dimensions of a strategy as options, each declared once: one value of each, or several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from autotune.schemas import BatchBounds, Dimension, Range, SpaceSpec, StrategyShape
from autotune.validation import validated
from search_spaces.errors import InvalidInput
from search_spaces.strategy import DIMENSIONS
from server.cli.options import OptionGroup, chosen
from server.cli.tables.elements import dimension_value

WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
DIMENSION_FORMS = "auto, one value 4, a list 1,2,4, a range 4:20 or with a step 4:20:4"
BATCH_FORMS = "one size 640, bounds 512:1024, or one of them 512: or :1024"

SWITCHES = frozenset({"sequence_parallel", "flash_attention"})

ONE_OF_EACH = dict.fromkeys(
    (name for name in DIMENSIONS if StrategyShape.model_fields[name].is_required()), 1
)
"""What a strategy has where nothing is said; the rest is StrategyShape's own."""


@dataclass(frozen=True, kw_only=True)
class DimensionOptions(OptionGroup):
    """A text for each dimension, as it was typed."""

    tensor_parallel: Annotated[
        str | None, typer.Option("--tp", help="Tensor parallel: GPUs that share each layer.")
    ] = None
    pipeline_parallel: Annotated[
        str | None, typer.Option("--pp", help="Pipeline parallel: stages of consecutive layers.")
    ] = None
    micro_batch_size: Annotated[
        str | None, typer.Option("--mbs", help="Micro-batch size: samples of one forward pass.")
    ] = None
    gradient_accumulation_steps: Annotated[
        str | None,
        typer.Option("--gas", help="Gradient accumulation steps: micro-batches of one step."),
    ] = None
    zero_stage: Annotated[
        str | None,
        typer.Option("--zero", help="ZeRO stage, 0 to 3: what data-parallel ranks share out."),
    ] = None
    num_nodes: Annotated[str | None, typer.Option("--num-nodes", help="Nodes to train on.")] = None
    activation_checkpointing: Annotated[
        str | None,
        typer.Option(
            "--checkpointing", help="Activations computed again: none, selective, or full."
        ),
    ] = None
    sequence_parallel: Annotated[
        str | None, typer.Option("--sequence-parallel", help="Sequence parallelism: on or off.")
    ] = None
    flash_attention: Annotated[
        str | None, typer.Option("--flash-attention", help="Flash attention: on or off.")
    ] = None
    virtual_stages: Annotated[
        str | None,
        typer.Option("--virtual-stages", help="Model chunks of each pipeline stage (interleaved)."),
    ] = None
    precision: Annotated[
        str | None, typer.Option("--precision", help="Of the weights: bf16, fp16, or fp32.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class StrategyOptions(DimensionOptions):
    """One value of each dimension."""

    PANEL: ClassVar[str] = "The strategy: one value of each dimension"
    DEFAULTS: ClassVar[Mapping[str, object]] = ONE_OF_EACH | {
        name: dimension_value(StrategyShape.model_fields[name].default)
        for name in DIMENSIONS
        if name not in ONE_OF_EACH
    }

    def shape(self) -> StrategyShape:
        """Return the strategy; raises InvalidInput for several values of a dimension."""
        values: dict[str, Dimension | None] = {}
        for name in DIMENSIONS:
            value = values[name] = dimension(name, getattr(self, name))
            if isinstance(value, Range | list) or value == "auto":
                reason = "one strategy has one value of each dimension"
                valid = "one value; `autotune sweep` ranks the strategies of many"
                raise InvalidInput(name, getattr(self, name), reason, valid=valid)
        return validated(StrategyShape, ONE_OF_EACH | chosen(**values))


@dataclass(frozen=True, kw_only=True)
class SpaceOptions(DimensionOptions):
    """What may be tried in each dimension."""

    PANEL: ClassVar[str] = "What may be tried: auto, 4, 1,2,4, 4:20 or 4:20:4"
    DEFAULTS: ClassVar[Mapping[str, object]] = {
        "activation_checkpointing": "full; none,full on GPUs where no layout is named",
        "sequence_parallel": "off; both on GPUs where no layout is named",
    }

    preset: Annotated[
        str | None, typer.Option("--space", help="Start from a ready space, such as table-v.")
    ] = None
    global_batch_size: Annotated[
        str | None,
        typer.Option("--global-batch", help="Samples of a step: 640, 512:1024, 512: or :1024."),
    ] = None

    def spec(self) -> SpaceSpec:
        """Return the space as the service takes it; raises InvalidInput(s)."""
        return validated(
            SpaceSpec,
            chosen(
                preset=self.preset,
                global_batch_size=global_batch_size(self.global_batch_size),
                **{name: dimension(name, getattr(self, name)) for name in DIMENSIONS},
            ),
        )


def dimension(field: str, text: str | None) -> Dimension | None:
    """Read `auto`, `4`, `1,2,4`, `4:20` or `4:20:4`; raises InvalidInput for anything else."""
    if text is None or text == "auto":
        return text
    if ":" in text:
        return _range(field, text)
    values = [
        int(part) if part.removeprefix("-").isdigit() else WORDS.get(part.lower(), part)
        for part in map(str.strip, text.split(","))
    ]
    if "" in values:
        raise InvalidInput(field, text, "this is no choice of values", valid=DIMENSION_FORMS)
    if field in SWITCHES and not all(isinstance(value, bool) for value in values):
        raise InvalidInput(field, text, "this is a switch", valid="on or off")
    return values if len(values) > 1 else values[0]


def _range(field: str, text: str) -> Range:
    bounds = text.split(":")
    if not all(bound.isdigit() for bound in bounds) or len(bounds) > 3:
        raise InvalidInput(field, text, "this is no range of whole numbers", valid=DIMENSION_FORMS)
    minimum, maximum, step = (*map(int, bounds), 1)[:3]
    if not minimum or not maximum or not step:
        reason = "the numbers of a range are greater than 0"
        raise InvalidInput(field, text, reason, valid="0 in a list, such as 0,1,2")
    if minimum > maximum:
        reason = f"the minimum {minimum} lies above the maximum {maximum}"
        raise InvalidInput(field, text, reason, valid=DIMENSION_FORMS)
    return Range(minimum=minimum, maximum=maximum, step=step)


def global_batch_size(text: str | None) -> int | BatchBounds | None:
    """Read `640`, `512:1024`, `512:` or `:1024`; raises InvalidInput for anything else."""
    if text is None:
        return None
    bounds = text.split(":")
    if len(bounds) > 2 or not any(bounds) or not all(b.isdigit() or not b for b in bounds):
        reason = "this is no number of samples"
        raise InvalidInput("global_batch_size", text, reason, valid=BATCH_FORMS)
    if len(bounds) == 1:
        return int(text)
    low, high = (int(bound) if bound else None for bound in bounds)
    if 0 in (low, high) or (low and high and low > high):
        reason = "the minimum is greater than 0 and at most the maximum"
        raise InvalidInput("global_batch_size", text, reason, valid=BATCH_FORMS)
    return BatchBounds(minimum=low, maximum=high)
