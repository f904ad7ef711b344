"""Options of `predict`: one strategy, or with --sweep what may be tried."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from autotune.schemas import Range, SpaceSpec, StrategyShape
from autotune.validation import validated
from search_spaces.errors import InvalidInput
from search_spaces.strategy import DIMENSIONS
from server.cli.choices import dimension, given
from server.cli.options import SpaceOptions

STRATEGY = "The strategy; with --sweep what may be tried: auto, 4, 1,2,4, 4:20 or 4:20:4"
SWEEP = "Many strategies at once"
SWITCH = "--sequence-parallel"
ONE_OF_EACH: dict[str, int] = {
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "zero_stage": 1,
    "num_nodes": 1,
}
"""What a strategy has where nothing is said; the rest is StrategyShape's own."""


def _option(flag: str, text: str, panel: str) -> Any:
    return typer.Option(flag, help=text, rich_help_panel=panel, show_default=False)


@dataclass(frozen=True, kw_only=True)
class StrategyOptions:
    """A value for each dimension, or with --sweep several."""

    tensor_parallel: Annotated[
        str | None, _option("--tp", "Tensor parallel.  \\[default: 1]", STRATEGY)
    ] = None
    pipeline_parallel: Annotated[
        str | None, _option("--pp", "Pipeline parallel.  \\[default: 1]", STRATEGY)
    ] = None
    micro_batch_size: Annotated[
        str | None, _option("--mbs", "Micro-batch size.  \\[default: 1]", STRATEGY)
    ] = None
    gradient_accumulation_steps: Annotated[
        str | None, _option("--gas", "Gradient accumulation steps.  \\[default: 1]", STRATEGY)
    ] = None
    zero_stage: Annotated[
        str | None, _option("--zero", "ZeRO stage, 0 to 3.  \\[default: 1]", STRATEGY)
    ] = None
    num_nodes: Annotated[str | None, _option("--num-nodes", "Nodes.  \\[default: 1]", STRATEGY)] = (
        None
    )
    activation_checkpointing: Annotated[
        str | None,
        _option(
            "--checkpointing",
            "Activations recomputed: none, selective, full.  \\[default: full]",
            STRATEGY,
        ),
    ] = None
    sequence_parallel: Annotated[
        str | None,
        _option(
            SWITCH, "Sequence parallelism: on, off; alone it means on.  \\[default: off]", STRATEGY
        ),
    ] = None
    flash_attention: Annotated[
        str | None,
        _option("--flash-attention", "Flash attention: on, off.  \\[default: on]", STRATEGY),
    ] = None
    flash: Annotated[
        bool | None,
        _option("--flash/--no-flash", "The same in short, for one strategy.", STRATEGY),
    ] = None
    virtual_stages: Annotated[
        str | None,
        _option("--virtual-stages", "Model chunks of each stage.  \\[default: 1]", STRATEGY),
    ] = None
    precision: Annotated[
        str | None,
        _option("--precision", "Of the weights: bf16, fp16, fp32.  \\[default: bf16]", STRATEGY),
    ] = None

    def shape(self) -> StrategyShape:
        """One strategy; raises InvalidInput for several values of a dimension."""
        chosen = given(**{name: self._single(name) for name in DIMENSIONS})
        if self.flash is not None:
            if self.flash_attention is not None:
                raise InvalidInput(
                    "flash_attention", self.flash_attention, "--flash says it already"
                )
            chosen["flash_attention"] = self.flash
        return validated(StrategyShape, ONE_OF_EACH | chosen)

    def _single(self, name: str) -> Any:
        text = getattr(self, name)
        value = dimension(name, text)
        if isinstance(value, Range | list) or value == "auto":
            reason = "one strategy has one value of each dimension"
            raise InvalidInput(name, text, reason, valid="one value, or --sweep to rank them all")
        return value

    def spec(self, *, preset: str | None, global_batch: str | None) -> SpaceSpec:
        """What may be tried; raises InvalidInput(s)."""
        if self.flash is not None:
            got = "--flash" if self.flash else "--no-flash"
            reason = "this is an option of one strategy, and --sweep ranks many"
            raise InvalidInput(
                "flash_attention", got, reason, valid="--flash-attention on, off, or on,off"
            )
        choices = {name: getattr(self, name) for name in DIMENSIONS}
        return SpaceOptions(preset=preset, global_batch=global_batch, **choices).spec()


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Whether all strategies of a space are ranked, and what the space is."""

    sweep: Annotated[
        bool, _option("--sweep", "Rank all strategies of a space, without a trial.", SWEEP)
    ] = False
    nodes: Annotated[
        int | None,
        _option("--nodes", "With --sweep: the most nodes of a strategy.  \\[default: 1]", SWEEP),
    ] = None
    preset: Annotated[
        str | None,
        _option("--space", "With --sweep: start from a ready space, such as table-v.", SWEEP),
    ] = None
    global_batch: Annotated[
        str | None,
        _option(
            "--global-batch",
            "With --sweep: samples of a step, as 640, 512:1024, 512: or :1024.",
            SWEEP,
        ),
    ] = None
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            min=1,
            help="With --sweep: print so many of the best.  \\[default: 20]",
            rich_help_panel=SWEEP,
            show_default=False,
        ),
    ] = None

    def refuse_without_sweep(self) -> None:
        """Raises InvalidInput for an option that only a sweep understands."""
        only = {
            "--nodes": self.nodes,
            "--space": self.preset,
            "--global-batch": self.global_batch,
            "--top": self.top,
        }
        for flag, value in given(**only).items():
            instead = "--num-nodes, or --sweep" if flag == "--nodes" else "--sweep"
            reason = "this is an option of a sweep, and one strategy is predicted"
            raise InvalidInput(flag, value, reason, valid=instead)


class StrategyCommand(TyperCommand):
    """A command whose --sequence-parallel may stand alone, as a switch, or before a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        said: list[str] = []
        for word, following in pairwise([*args, "-"]):
            said += [word, "on"] if word == SWITCH and following.startswith("-") else [word]
        return super().parse_args(ctx, said)
