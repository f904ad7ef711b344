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
    "parallel",
    "memory",
    "pareto",
    "scaling",
    "calibration",
    "timeline",
]
"""`trajectory`: the search as it went. `parts`, `memory_parts`: where time and memory of the best
layouts go. `impact`, `beeswarm`: how much each dimension decides, in all and in each strategy.
`marginal`: the rate along each dimension. `map`: the best rate for each TP and PP. `parallel`: each
trial through the values of all dimensions. `memory`: the rate against the memory left. `pareto`:
against nodes or energy. `scaling`: the efficiency of a layout on more nodes. `calibration`: what
was predicted of each trial against what was measured. `timeline`: the nodes over time."""

PictureFormat = Literal["svg", "png", "pdf"]

FigureForm = Literal["json", "vega.json"] | PictureFormat
"""What a figure can be had as, by the end of a file's name: `json` is its data, `vega.json` its
chart."""

FigureScheme = Literal["light", "dark"]


class FigureTable(Wire):
    """The same as the picture, for those who do not see it."""

    columns: list[str]
    """Headings."""
    rows: list[list[str]]
    """Cells of each row, as text."""


class FigureChoice(Wire):
    """A query parameter by which a figure can be narrowed."""

    name: str
    """Name of the parameter."""
    label: str
    """Its name for people."""
    values: list[str]
    """What it may be."""
    value: str = ""
    """What it is narrowed to now; empty for all where it is not `required`."""
    required: bool = False
    """Whether it always has one of the values."""


class Figure(Wire):
    """What all figures have; each kind adds its series."""

    campaign_id: int
    """The campaign."""
    kind: FigureKind
    """What it shows."""
    title: str
    """Its title."""
    caption: str
    """What it shows, in a sentence."""
    simulated: bool
    """Whether its figures come from the cost model and no machine."""
    table: FigureTable
    """The same as a table."""
    choices: list[FigureChoice] = Field(default_factory=list)
    """What it can be narrowed to, where there is more than one value to choose from."""


class FigureOffer(Wire):
    """A kind of figure, and whether a campaign has it."""

    kind: FigureKind
    """The kind."""
    title: str
    """Its title."""
    shows: str
    """What it shows, in words."""
    missing: str = ""
    """Why the campaign has none of it; empty where it has."""


class FigureOffers(Wire):
    """All kinds of figures, in the order of a report."""

    campaign_id: int
    """The campaign."""
    simulated: bool
    """Whether what they show comes from the cost model and no machine."""
    figures: list[FigureOffer]
    """The kinds; those with an empty `missing` can be had."""
