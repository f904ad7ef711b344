"""A figure: the caption, table and chart that pages, pictures, shell and notebooks share."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from dataclasses import dataclass
from textwrap import wrap

from autotune.schemas import CampaignFigure, FigureForm, FigureTable
from server.figures.export import export
from server.figures.style import PALETTES, Scheme
from server.figures.vega import Spec, encoded

CSV = "text/csv"
PICTURE_WIDTH_PX = 760
CAPTION_LETTERS = 118
"""In a line over the picture; more do not fit its width."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure in the colours of one scheme.

    Attributes:
        name: of its files.
        caption: what it shows, in a sentence or two.
        table: what its marks show, for those who do not see them.
        specification: Vega-Lite with its rows, as wide as what it is put into.
    """

    name: str
    title: str
    caption: str
    table: FigureTable
    specification: Spec
    scheme: Scheme = "light"

    def described(self) -> Spec:
        """Return the specification with what a page says beside the chart, as `usermeta`."""
        said = {"title": self.title, "caption": self.caption, "table": self.table.model_dump()}
        return self.specification | {"usermeta": said}

    def picture(self) -> Spec:
        """Return the specification of a picture: of a width of its own, on a ground, under its
        title and caption."""
        palette = PALETTES[self.scheme]
        heading = {
            "text": self.title,
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
        return self.specification | sized | {"title": heading}


class DrawnFigure(CampaignFigure, ABC):
    """A figure of a campaign as it is answered: with its series, which each kind adds."""

    @abstractmethod
    def chart(self, *, scheme: Scheme = "light") -> Spec:
        """Return it as Vega-Lite with its rows, as wide as what it is put into."""

    def described_chart(self, *, scheme: Scheme = "light") -> Spec:
        """Return the same, with what a page says beside it as `usermeta`."""
        said = self.model_dump(mode="json", include=set(CampaignFigure.model_fields))
        return self.chart(scheme=scheme) | {"usermeta": said}

    def drawn(self, *, scheme: Scheme = "light") -> Figure:
        """Return it under a title that names its campaign, and says that it is simulated."""
        said = f"{self.title} of campaign {self.campaign_id}"
        return Figure(
            name=self.kind,
            title=f"{said} (simulated)" if self.simulated else said,
            caption=self.caption,
            table=self.table,
            specification=self.chart(scheme=scheme),
            scheme=scheme,
        )

    def encoded(self, form: FigureForm, *, scheme: Scheme = "light") -> bytes:
        """Return it as a file: its data, its table, its chart, or a picture.

        Raises:
            OSError: a picture could not be drawn.
        """
        if form == "json":
            return self.model_dump_json(by_alias=True).encode()
        if form == "csv":
            return as_csv(self.table)
        if form == "vega.json":
            return encoded(self.described_chart(scheme=scheme))
        return export(self.drawn(scheme=scheme).picture(), form)


def as_csv(table: FigureTable) -> bytes:
    """Return a table as a file that spreadsheets and statistics programs read (RFC 4180)."""
    written = io.StringIO()
    csv.writer(written).writerows([table.columns, *table.rows])
    return written.getvalue().encode()
