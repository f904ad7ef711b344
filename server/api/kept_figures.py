"""Figures of campaigns, worked out once for all who look at them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import get_args

from autotune.schemas import FigureForm, FigureKind, FigureOffers
from server.api.kept_answers import KeptAnswer, as_json, chart_as_json
from server.api.kept_by_trials import KeptByTrials
from server.api.kept_campaigns import KeptCampaigns
from server.figures.export import MEDIA_TYPES, export
from server.figures.figure import CSV, DrawnFigure, as_csv
from server.figures.kinds import DEFINITIONS, FigureOptions, missing, offer
from server.figures.source import FigureSource
from server.figures.style import Scheme
from server.store import NotFound

FIGURES = 60
FILES = 60


def _answer(figure: DrawnFigure, form: FigureForm, scheme: Scheme) -> KeptAnswer:
    if form == "json":
        return KeptAnswer.of(as_json(figure))
    if form == "csv":
        return KeptAnswer.of(as_csv(figure.table), media_type=CSV)
    if form == "vega.json":
        return KeptAnswer.of(chart_as_json(figure.described_chart(scheme=scheme)))
    picture = export(figure.drawn(scheme=scheme).picture(), form)
    return KeptAnswer.of(picture, media_type=MEDIA_TYPES[form])


class KeptFigures:
    """A figure is kept until more happens in its campaign than the progress of a trial."""

    def __init__(self, campaigns: KeptCampaigns) -> None:
        self._campaigns = campaigns
        self._offers: KeptByTrials[FigureOffers] = KeptByTrials(campaigns, FIGURES)
        self._figures: KeptByTrials[DrawnFigure] = KeptByTrials(campaigns, FIGURES)
        self._files: KeptByTrials[KeptAnswer] = KeptByTrials(campaigns, FILES)

    def offers(self, campaign_id: int) -> FigureOffers:
        """Return which figures a campaign has, and why not the others; raises NotFound."""
        event = self._campaigns.last_event(campaign_id)
        return self._offers.of(campaign_id, event, _offered)

    def figure(self, campaign_id: int, kind: FigureKind, options: FigureOptions) -> DrawnFigure:
        """Return one figure.

        Raises:
            NotFound: there is no such campaign, or it has no such figure.
            InvalidInput: it has no such figure under these options.
        """
        event = self._campaigns.last_event(campaign_id)
        return self._figure(campaign_id, event, kind, options)

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
        figure = self._figure(campaign_id, event, kind, options)
        return self._files.of(
            campaign_id,
            event,
            lambda _: _answer(figure, form, scheme),
            besides=(kind, options, scheme, form),
        )

    def _figure(
        self, campaign_id: int, event: int, kind: FigureKind, options: FigureOptions
    ) -> DrawnFigure:
        return self._figures.of(
            campaign_id,
            event,
            lambda source: _made(source, kind, options),
            besides=(kind, options),
        )


def _offered(source: FigureSource) -> FigureOffers:
    with source.belief.lock:
        figures = [offer(kind, source) for kind in get_args(FigureKind)]
    return FigureOffers(
        campaign_id=source.campaign.id, simulated=source.campaign.simulated, figures=figures
    )


def _made(source: FigureSource, kind: FigureKind, options: FigureOptions) -> DrawnFigure:
    fits = DEFINITIONS[kind].rests_on != "trials"
    with source.belief.lock if fits else nullcontext():
        why = missing(kind, source)
        if why:
            reason = f"campaign {source.campaign.id} has no figure of {kind}: {why}"
            raise NotFound("figure", kind, reason=reason)
        return DEFINITIONS[kind].make(source, options)
