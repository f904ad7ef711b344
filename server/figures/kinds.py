"""All kinds of figures: which a campaign has, and how they are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, get_args

from pydantic import Field

from autotune.schemas.choices import FIGURE_NAMES, FigureKind, ParetoCost, ScalingKind
from autotune.schemas.figures import FigureOffer
from server.figures.calibration import CalibrationFigure
from server.figures.figure import DrawnFigure
from server.figures.importance import ImpactFigure
from server.figures.knobs import KnobsFigure
from server.figures.layout_map import USUAL_AXES, LayoutMapFigure
from server.figures.parallel import FailedLines, ParallelFigure
from server.figures.pareto import ParetoFigure
from server.figures.parts import MemoryPartsFigure, PartsFigure
from server.figures.scaling import ScalingFigure
from server.figures.source import FigureSource
from server.figures.trajectory import Axis, TrajectoryFigure

AnyFigure = Annotated[
    TrajectoryFigure
    | PartsFigure
    | MemoryPartsFigure
    | ImpactFigure
    | LayoutMapFigure
    | ParallelFigure
    | ParetoFigure
    | ScalingFigure
    | KnobsFigure
    | CalibrationFigure,
    Field(discriminator="kind"),
]
"""A figure with the series of its kind: the schema of the API's responses."""


@dataclass(frozen=True, kw_only=True)
class FigureOptions:
    """Filters of figures; a kind ignores those of other kinds.

    Attributes:
        by: quantity of the trajectory's horizontal axis.
        x, y: dimensions of the map.
        micro_batch_size, num_nodes: filter the map; None for the best of all.
        failed: whether parallel coordinates show failed trials.
        against: cost of the Pareto front; None for the first that is available.
        scaling: strong or weak; None for the first that is available.
    """

    by: Axis = "trial"
    x: str = USUAL_AXES[0]
    y: str = USUAL_AXES[1]
    micro_batch_size: int | None = None
    num_nodes: int | None = None
    failed: FailedLines = "shown"
    against: ParetoCost | None = None
    scaling: ScalingKind | None = None


KINDS: Mapping[FigureKind, type[DrawnFigure]] = {
    each.model_fields["kind"].default: each for each in get_args(get_args(AnyFigure)[0])
}


def made(kind: FigureKind, source: FigureSource, options: FigureOptions) -> DrawnFigure:
    figure = KINDS[kind]
    return figure.of(source, **{name: getattr(options, name) for name in figure.filters})


def missing(kind: FigureKind, source: FigureSource) -> str:
    """Return why a campaign has no figure of this kind; empty if it has."""
    if source.campaign.is_imported:
        return "its runs were imported"
    figure = KINDS[kind]
    reason = figure.missing(source)
    if reason or figure.rests_on != "space":
        return reason
    return "" if len(source.belief.space.lattice()) else "its space is empty"


def offer(kind: FigureKind, source: FigureSource) -> FigureOffer:
    """Return a kind's description, and whether a campaign has it."""
    figure = KINDS[kind]
    return FigureOffer(
        kind=kind,
        name=FIGURE_NAMES.get(kind, kind),
        title=figure.named,
        shows=figure.shows,
        missing=missing(kind, source),
    )
