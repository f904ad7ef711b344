"""All kinds of figures: what each shows, whether a campaign has it, and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from autotune.schemas.choices import FIGURE_NAMES, FigureKind, ParetoCost, ScalingKind
from autotune.schemas.figures import FigureOffer
from search_spaces.errors import InvalidInput, InvalidInputs
from server.figures import (
    calibration,
    impact,
    layout_map,
    marginal,
    memory_headroom,
    parallel,
    pareto,
    parts,
    scaling,
    timeline,
)
from server.figures.calibration import CalibrationFigure
from server.figures.figure import DrawnFigure
from server.figures.impact import BeeswarmFigure, ImpactFigure
from server.figures.layout_map import LayoutMapFigure
from server.figures.marginal import MarginalFigure
from server.figures.memory_headroom import MemoryFigure
from server.figures.parallel import ParallelFigure
from server.figures.pareto import ParetoFigure
from server.figures.parts import MemoryPartsFigure, PartsFigure
from server.figures.scaling import ScalingFigure
from server.figures.source import FigureSource
from server.figures.timeline import TimelineFigure
from server.figures.trajectory import Axis, TrajectoryFigure

AnyFigure = Annotated[
    TrajectoryFigure
    | PartsFigure
    | MemoryPartsFigure
    | ImpactFigure
    | BeeswarmFigure
    | MarginalFigure
    | LayoutMapFigure
    | ParallelFigure
    | MemoryFigure
    | ParetoFigure
    | ScalingFigure
    | CalibrationFigure
    | TimelineFigure,
    Field(discriminator="kind"),
]
"""A figure with the series of its kind: the schema of the API's responses."""


@dataclass(frozen=True, kw_only=True)
class FigureOptions:
    """Filters of figures; a kind ignores those of other kinds.

    Attributes:
        by: quantity of the trajectory's horizontal axis.
        micro_batch_size, num_nodes: filter the map; None for the best of all.
        against: cost of the Pareto front; None for the first that is available.
        scaling: strong or weak; None for the first that is available.
    """

    by: Axis = "trial"
    micro_batch_size: int | None = None
    num_nodes: int | None = None
    against: ParetoCost | None = None
    scaling: ScalingKind | None = None


@dataclass(frozen=True, kw_only=True)
class FigureDefinition:
    """One kind of figure.

    Attributes:
        missing: returns why a campaign has no such figure; empty if it has.
        rests_on: what it needs besides the trials: the calibration, or that and the search space.
        of_studies: whether scaling studies have it, too.
    """

    title: str
    shows: str
    make: Callable[[FigureSource, FigureOptions], DrawnFigure]
    missing: Callable[[FigureSource], str]
    rests_on: Literal["trials", "calibration", "space"] = "trials"
    of_studies: bool = False


DEFINITIONS: Mapping[FigureKind, FigureDefinition] = {
    "trajectory": FigureDefinition(
        title="Search trajectory",
        shows="every trial, the best so far, and failures",
        make=lambda source, options: TrajectoryFigure.of(source, by=options.by),
        missing=lambda source: "" if source.trials else "no trial has been started yet",
    ),
    "parts": FigureDefinition(
        title="Where the time goes",
        shows="the time of the best, its runners-up and the baseline by part",
        make=lambda source, _: PartsFigure.of(source),
        missing=parts.missing,
        rests_on="calibration",
    ),
    "memory_parts": FigureDefinition(
        title="Where the memory goes",
        shows="the memory of the same by part, against the limit",
        make=lambda source, _: MemoryPartsFigure.of(source),
        missing=parts.missing,
        rests_on="calibration",
    ),
    "impact": FigureDefinition(
        title="Importance",
        shows="how much each dimension changes the rate, with an 80 % interval",
        make=lambda source, _: ImpactFigure.of(source),
        missing=impact.missing,
        rests_on="space",
    ),
    "beeswarm": FigureDefinition(
        title="Importance by value",
        shows="how much each value changes the rate of each strategy",
        make=lambda source, _: BeeswarmFigure.of(source),
        missing=impact.missing,
        rests_on="space",
    ),
    "marginal": FigureDefinition(
        title="Marginal effect",
        shows="the rate at each value of a dimension, all else being equal",
        make=lambda source, _: MarginalFigure.of(source),
        missing=marginal.missing,
        rests_on="space",
    ),
    "map": FigureDefinition(
        title="Best rate by TP and PP",
        shows="what ran, ran out of memory, or is predicted",
        make=lambda source, options: LayoutMapFigure.of(
            source, micro_batch_size=options.micro_batch_size, num_nodes=options.num_nodes
        ),
        missing=layout_map.missing,
        rests_on="space",
    ),
    "parallel": FigureDefinition(
        title="Parallel coordinates",
        shows="each trial as a line through its value of every dimension, coloured by its rate",
        make=lambda source, _: ParallelFigure.of(source),
        missing=parallel.missing,
    ),
    "memory": FigureDefinition(
        title="Memory headroom",
        shows="the rate of each trial against the memory that it leaves free",
        make=lambda source, _: MemoryFigure.of(source),
        missing=memory_headroom.missing,
        of_studies=True,
    ),
    "pareto": FigureDefinition(
        title="Pareto front",
        shows="the layouts that no other beats in both the rate and its cost in nodes or energy",
        make=lambda source, options: ParetoFigure.of(source, against=options.against),
        missing=pareto.missing,
    ),
    "scaling": FigureDefinition(
        title="Scaling",
        shows="the efficiency on more nodes, measured and predicted, against the ideal",
        make=lambda source, options: ScalingFigure.of(source, scaling=options.scaling),
        missing=scaling.missing,
        rests_on="calibration",
        of_studies=True,
    ),
    "calibration": FigureDefinition(
        title="Predicted and measured",
        shows="each trial against what was predicted of it, with the 80 % interval",
        make=lambda source, _: CalibrationFigure.of(source),
        missing=calibration.missing,
        of_studies=True,
    ),
    "timeline": FigureDefinition(
        title="Nodes over time",
        shows="when each trial waited, started up and trained, and how busy the nodes were",
        make=lambda source, _: TimelineFigure.of(source),
        missing=timeline.missing,
        of_studies=True,
    ),
}


def missing(kind: FigureKind, source: FigureSource) -> str:
    """Return why a campaign has no figure of this kind; empty if it has."""
    definition = DEFINITIONS[kind]
    if source.campaign.request.study is not None and not definition.of_studies:
        return "a scaling study searches nothing"
    reason = definition.missing(source)
    if reason or definition.rests_on != "space":
        return reason
    try:
        empty = not len(source.belief.space.lattice())
    except (InvalidInput, InvalidInputs):
        return "its space is of an earlier version, and can no longer be searched"
    return "its space is empty" if empty else ""


def offer(kind: FigureKind, source: FigureSource) -> FigureOffer:
    """Return a kind's description, and whether a campaign has it."""
    definition = DEFINITIONS[kind]
    return FigureOffer(
        kind=kind,
        name=FIGURE_NAMES.get(kind, kind),
        title=definition.title,
        shows=definition.shows,
        missing=missing(kind, source),
    )
