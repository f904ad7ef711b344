"""A figure: the caption, table and chart that pages, pictures, shell and notebooks share."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any, ClassVar, Literal, Self, TypeVar

from autotune.measurement.objectives import OBJECTIVE_UNITS
from autotune.schemas.figures import CampaignFigure, FigureChoice, FigureForm, FigureTable
from autotune.schemas.wire import Wire
from server.figures.export import export
from server.figures.source import FigureSource
from server.figures.vega import PALETTES, Scheme, Spec, encoded, nominal

CSV = "text/csv"
PICTURE_WIDTH_PX = 760
CAPTION_LETTERS = 118
"""Maximum length of a line of the caption in a picture."""

NOT_MEASURED = "no trial has given a measurement yet"

Point = TypeVar("Point", bound=Wire)
Cells = Mapping[str, Callable[[Point], str]]
"""The columns of a table by their headings, each with the text of its cells. Tooltips show the same
columns."""


def table_of(cells: Cells[Point], points: Sequence[Point]) -> FigureTable:
    rows = [[text(point) for text in cells.values()] for point in points]
    return FigureTable(columns=list(cells), rows=rows)


def rows_of(cells: Cells[Point], points: Sequence[Point]) -> list[Spec]:
    """Return the points as rows of a chart, with the cells of their tooltips."""
    return [
        point.model_dump(mode="json") | {name: text(point) for name, text in cells.items()}
        for point in points
    ]


def tooltip(cells: Cells[Point]) -> list[Spec]:
    return [nominal(name, title=name) for name in cells]


class Figure(Wire, ABC):
    """A figure: subclasses add the values that it shows, and draw them."""

    title: str
    """Its title."""
    caption: str
    """Summary in a sentence or two."""
    table: FigureTable
    """The figure as a table."""

    @property
    def heading(self) -> str:
        return self.title

    @abstractmethod
    def chart(self, *, scheme: Scheme = "light") -> Spec:
        """Return a Vega-Lite specification with its rows, as wide as its container."""

    def described_chart(self, *, scheme: Scheme = "light") -> Spec:
        described = self.model_dump(mode="json", include=set(CampaignFigure.model_fields))
        return self.chart(scheme=scheme) | {"usermeta": described}

    def picture(self, *, scheme: Scheme = "light") -> Spec:
        """Return the specification of a picture: of a fixed width, with a background, the title and
        the caption."""
        palette = PALETTES[scheme]
        heading = {
            "text": self.heading,
            "subtitle": wrap(self.caption, CAPTION_LETTERS),
            "anchor": "start",
            "frame": "group",
            "color": palette.text,
            "subtitleColor": palette.faint,
            "fontSize": 15,
            "subtitleFontSize": 12,
            "subtitlePadding": 6,
            "offset": 14,
        }
        sized = {"width": PICTURE_WIDTH_PX, "background": palette.card, "padding": 16}
        return self.chart(scheme=scheme) | sized | {"title": heading}

    def encoded(self, form: FigureForm, *, scheme: Scheme = "light") -> bytes:
        """Return the figure as a file: its data, its table, its chart, or a picture.

        Raises:
            OSError: a picture could not be drawn.
        """
        if form == "json":
            return self.model_dump_json(by_alias=True).encode()
        if form == "csv":
            return as_csv(self.table)
        if form == "vega.json":
            return encoded(self.described_chart(scheme=scheme))
        return export(self.picture(scheme=scheme), form)


class DrawnFigure(CampaignFigure, Figure):
    """A figure of a campaign; each kind adds its series.

    Attributes:
        named: its usual title.
        shows: what it shows, as a clause.
        rests_on: what it needs besides the trials: the calibration, or that and the search space.
        filters: the FigureOptions that `of` takes.
    """

    named: ClassVar[str]
    shows: ClassVar[str]
    rests_on: ClassVar[Literal["trials", "calibration", "space"]] = "trials"
    filters: ClassVar[tuple[str, ...]] = ()

    @classmethod
    @abstractmethod
    def of(cls, source: FigureSource) -> Self:
        """Return the figure of a campaign, which must not be missing."""

    @classmethod
    def missing(cls, source: FigureSource) -> str:
        return "" if source.measured else NOT_MEASURED

    @classmethod
    def _of_campaign(
        cls, source: FigureSource, caption: str, *, title: str = "", **fields: Any
    ) -> Self:
        campaign = source.campaign
        return cls(
            campaign_id=campaign.id,
            title=title or cls.named,
            caption=caption,
            simulated=campaign.simulated,
            **fields,
        )

    @property
    def heading(self) -> str:
        heading = f"{self.title} of campaign {self.campaign_id}"
        return f"{heading} (simulated)" if self.simulated else heading


class RateFigure(DrawnFigure):
    """A figure of the campaign's objective."""

    unit: str
    """Unit of the rate."""

    @classmethod
    def _of_campaign(
        cls, source: FigureSource, caption: str, *, title: str = "", **fields: Any
    ) -> Self:
        fields["unit"] = OBJECTIVE_UNITS[source.campaign.request.objective]
        return super()._of_campaign(source, caption, title=title, **fields)


def choice(
    name: str, values: Sequence[str], value: str, *, label: str = "", required: bool = True
) -> list[FigureChoice]:
    if len(values) < 2:
        return []
    return [
        FigureChoice(
            name=name, label=label or name, values=list(values), value=value, required=required
        )
    ]


def as_csv(table: FigureTable) -> bytes:
    written = io.StringIO()
    csv.writer(written).writerows([table.columns, *table.rows])
    return written.getvalue().encode()
