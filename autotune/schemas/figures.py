"""Figures of a campaign: their kinds, and their data and words next to the picture."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.schemas.choices import FigureKind, FigureName
from autotune.schemas.wire import Wire
from search_spaces.dimensions import Scalar
from search_spaces.strategy import Strategy

PictureFormat = Literal["svg", "png", "pdf"]

FigureForm = Literal["json", "csv", "vega.json"] | PictureFormat
"""Formats of a figure, by file extension: `json` is its data, `csv` its table, `vega.json` its
chart."""


class FigureTable(Wire):
    """The figure as a table, for screen readers."""

    columns: list[str]
    """Headings."""
    rows: list[list[str]]
    """Cells of each row, as text."""


class FigureChoice(Wire):
    """A query parameter that filters a figure."""

    name: str
    """Name of the parameter."""
    label: str
    """Its label."""
    values: list[str]
    """Allowed values."""
    value: str = ""
    """Current value; empty for all values unless `required`."""
    required: bool = False
    """Whether a value is required."""


class CampaignFigure(Wire):
    """Common fields of all figures; each kind adds its series."""

    campaign_id: int
    """The campaign."""
    kind: FigureKind
    """Kind of figure."""
    title: str
    """Its title."""
    caption: str
    """Summary in a sentence."""
    simulated: bool
    """Whether its results are simulated by the cost model."""
    table: FigureTable
    """The figure as a table."""
    choices: list[FigureChoice] = Field(default_factory=list)
    """Filters with more than one value to choose from."""


PlaceState = Literal["measured", "predicted", "out_of_memory", "too_large"]


class MapPlace(Wire):
    """One pair of values of the map's dimensions."""

    x: Scalar
    """Value of the horizontal dimension."""
    y: Scalar
    """Value of the vertical dimension."""
    state: PlaceState
    """`predicted`: no trial ran there yet; `out_of_memory`: trials there ran out of memory, and the
    other strategies are unlikely to fit; `too_large`: no trial ran, and no strategy is likely to
    fit."""
    rate: float | None
    """Rate of its best strategy; null if none runs."""
    low: float | None
    """Lower bound of the 80 % interval of a predicted rate; null if it is measured."""
    high: float | None
    """Upper bound of the 80 % interval of a predicted rate; null if it is measured."""
    strategy: Strategy | None
    """Its best strategy; null if none runs."""
    fit_probability: float
    """Probability that the best strategy fits, or the highest of all strategies."""
    strategies: int
    """Legal strategies there."""
    trials: int
    """Trials that have ended there."""
    out_of_memory: int
    """Trials that ran out of memory there."""


class FigureOffer(Wire):
    """A kind of figure, and whether a campaign has it."""

    kind: FigureKind
    """The kind."""
    name: FigureName
    """Name in requests; the kind is accepted, too."""
    title: str
    """Its title."""
    shows: str
    """Description."""
    missing: str = ""
    """Why the campaign has no such figure; empty if it has one."""


class FigureOffers(Wire):
    """All kinds of figures, in display order."""

    campaign_id: int
    """The campaign."""
    simulated: bool
    """Whether their data is simulated by the cost model."""
    figures: list[FigureOffer]
    """The kinds; those with an empty `missing` are available."""
