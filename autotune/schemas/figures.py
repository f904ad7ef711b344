"""Figures of a campaign: which there are, and what each is told by besides its picture."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.schemas.choices import FigureKind, FigureName
from autotune.schemas.wire import Wire

PictureFormat = Literal["svg", "png", "pdf"]

FigureForm = Literal["json", "vega.json"] | PictureFormat
"""What a figure can be had as, by the end of a file's name: `json` is its data, `vega.json` its
chart."""


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
    name: FigureName
    """The name by which it is asked for; its kind is one, too."""
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
