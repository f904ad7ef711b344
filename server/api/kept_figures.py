"""Figures of campaigns, worked out once for all who look at them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import get_args

from autotune.schemas import FigureForm, FigureKind, FigureOffers
from server.api.kept import Kept
from server.api.kept_answers import KeptAnswer, as_json, chart_as_json
from server.api.kept_campaigns import KeptCampaigns
from server.figures.drawn import DrawnFigure
from server.figures.export import MEDIA_TYPES, export
from server.figures.kinds import DEFINITIONS, FigureOptions, missing, offer
from server.figures.style import Scheme
from server.store import NotFound

FIGURES = 60
FILES = 60


def _answer(figure: DrawnFigure, form: FigureForm, scheme: Scheme) -> KeptAnswer:
    if form == "json":
        return KeptAnswer.of(as_json(figure))
    if form == "vega.json":
        return KeptAnswer.of(chart_as_json(figure.described_chart(scheme=scheme)))
    picture = export(figure.picture(scheme=scheme), form)
    return KeptAnswer.of(picture, media_type=MEDIA_TYPES[form])


class KeptFigures:
    """A figure is kept until something happens in its campaign."""

    def __init__(self, campaigns: KeptCampaigns) -> None:
        self._campaigns = campaigns
        self._offers: Kept[FigureOffers] = Kept(FIGURES)
        self._figures: Kept[DrawnFigure] = Kept(FIGURES)
        self._files: Kept[KeptAnswer] = Kept(FILES)

    def offers(self, campaign_id: int) -> FigureOffers:
        """Return which figures a campaign has, and why not the others; raises NotFound."""
        event = self._campaigns.last_event(campaign_id)
        return self._offers.of((campaign_id, event), lambda: self._offered(campaign_id, event))

    def figure(self, campaign_id: int, kind: FigureKind, options: FigureOptions) -> DrawnFigure:
        """Return one figure.

        Raises:
            NotFound: there is no such campaign, or it has no such figure.
            InvalidInput: it has no such figure under these options.
        """
        event = self._campaigns.last_event(campaign_id)
        key = (campaign_id, event, kind, options)
        return self._figures.of(key, lambda: self._made(campaign_id, event, kind, options))

    def file(
        self,
        campaign_id: int,
        kind: FigureKind,
        options: FigureOptions,
        form: FigureForm,
        *,
        scheme: Scheme = "light",
    ) -> KeptAnswer:
        """Return one figure as it is sent: its data, its chart, or a picture.

        Raises:
            NotFound, InvalidInput: as `figure` does.
            OSError: a picture could not be drawn.
        """
        event = self._campaigns.last_event(campaign_id)
        figure = self.figure(campaign_id, kind, options)
        key = (campaign_id, event, kind, options, scheme, form)
        return self._files.of(key, lambda: _answer(figure, form, scheme))

    def _offered(self, campaign_id: int, event: int) -> FigureOffers:
        source = self._campaigns.source(campaign_id, event)
        with source.belief.lock:
            figures = [offer(kind, source) for kind in get_args(FigureKind)]
        return FigureOffers(
            campaign_id=campaign_id, simulated=source.campaign.simulated, figures=figures
        )

    def _made(
        self, campaign_id: int, event: int, kind: FigureKind, options: FigureOptions
    ) -> DrawnFigure:
        source = self._campaigns.source(campaign_id, event)
        fits = DEFINITIONS[kind].rests_on != "trials"
        with source.belief.lock if fits else nullcontext():
            why = missing(kind, source)
            if why:
                reason = f"campaign {campaign_id} has no figure of {kind}: {why}"
                raise NotFound("figure", kind, reason=reason)
            return DEFINITIONS[kind].make(source, options)
