"""Figures of a campaign: which there are, and what each is told by besides its picture."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.schemas.wire import Wire

FigureKind = Literal[
    "trajectory",
    "parts",
    "memory_parts",
    "impact",
    "beeswarm",
    "marginal",
    "map",
    "memory",
    "pareto",
    "calibration",
    "timeline",
]
"""`trajectory`: the search as it went. `parts`, `memory_parts`: where time and memory of the best
layouts go. `impact`, `beeswarm`: how much each dimension decides, in all and in each strategy.
`marginal`: the rate along each dimension. `map`: the best rate for each TP and PP. `memory`: the
rate against the memory left. `pareto`: against nodes or energy. `calibration`: what was predicted
of each trial against what was measured. `timeline`: the nodes over time."""

PictureFormat = Literal["svg", "png", "pdf"]

FigureScheme = Literal["light", "dark"]


class FigureTable(Wire):
    """The same as the picture, for those who do not see it: the cells of each row as text."""

    columns: list[str]
    rows: list[list[str]]


class FigureChoice(Wire):
    """A query parameter by which a figure can be narrowed: `value` is what it is narrowed to now,
    empty for all where it is not `required`; `label` is its name for people."""

    name: str
    label: str
    values: list[str]
    value: str = ""
    required: bool = False


class Figure(Wire):
    """What all figures have; each kind adds its series.

    `caption` says in a sentence what it shows. `choices` are given where there is more than one
    value to choose from.
    """

    campaign_id: int
    kind: FigureKind
    title: str
    caption: str
    simulated: bool
    table: FigureTable
    choices: list[FigureChoice] = Field(default_factory=list)


class FigureOffer(Wire):
    """A kind of figure; `missing` says why the campaign has none of it, and is empty where it
    has."""

    kind: FigureKind
    title: str
    shows: str
    missing: str = ""


class FigureOffers(Wire):
    """All kinds of figures, in the order of a report; `simulated` of what they show."""

    campaign_id: int
    simulated: bool
    figures: list[FigureOffer] = Field(description="those with an empty `missing` can be had")
