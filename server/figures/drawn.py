"""What every figure can do: be drawn, on a page and as a picture of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from textwrap import wrap

from autotune.schemas import Figure
from server.figures.style import PALETTES, Scheme
from server.figures.vega import Spec

PICTURE_WIDTH_PX = 760
CAPTION_LETTERS = 118
"""In a line over the picture; more do not fit its width."""


class DrawnFigure(Figure, ABC):
    """A figure with its series, which each kind adds."""

    @abstractmethod
    def chart(self, *, scheme: Scheme = "light") -> Spec:
        """Return it as Vega-Lite with its rows, as wide as what it is put into."""

    def described_chart(self, *, scheme: Scheme = "light") -> Spec:
        """Return the same, with what a page says beside it as `usermeta`."""
        said = self.model_dump(mode="json", include=set(Figure.model_fields))
        return self.chart(scheme=scheme) | {"usermeta": said}

    def picture(self, *, scheme: Scheme = "light") -> Spec:
        """Return it as Vega-Lite that stands alone: of a width of its own, on a ground, with its
        title and caption, and with the word that it is simulated."""
        said = f"{self.title} of campaign {self.campaign_id}"
        return standing_alone(
            self.chart(scheme=scheme),
            title=f"{said} (simulated)" if self.simulated else said,
            caption=self.caption,
            scheme=scheme,
        )


def standing_alone(spec: Spec, *, title: str, caption: str, scheme: Scheme) -> Spec:
    """Return a chart with a width of its own, on a ground, under its title and caption."""
    palette = PALETTES[scheme]
    heading = {
        "text": title,
        "subtitle": wrap(caption, CAPTION_LETTERS),
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
    return spec | sized | {"title": heading}
