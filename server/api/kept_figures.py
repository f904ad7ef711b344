"""Figures of campaigns, worked out once for all who look at them."""

from __future__ import annotations

import gzip
import hashlib
import json
from contextlib import nullcontext
from dataclasses import dataclass
from typing import get_args

from autotune.schemas import FigureForm, FigureKind, FigureOffers
from server.api.kept import Kept
from server.figures.drawn import DrawnFigure
from server.figures.export import export
from server.figures.kinds import DEFINITIONS, FigureOptions, missing, offer
from server.figures.source import CampaignBelief, FigureSource
from server.figures.style import Scheme
from server.store import NotFound, Store
from server.store.campaigns import get_campaign, profile_of
from server.store.events import newest_events
from server.store.history import earlier_observations
from server.store.trials import all_trials

SOURCES = 8
"""Campaigns whose trials are kept; they are the largest part of it."""

FIGURES = 60
FILES = 60


@dataclass(frozen=True, kw_only=True)
class FigureFile:
    """A figure as it is sent.

    Attributes:
        compressed: the same with gzip.
        tag: changes with the content.
    """

    content: bytes
    compressed: bytes
    tag: str

    @classmethod
    def of(cls, content: bytes) -> FigureFile:
        digest = hashlib.sha256(content).hexdigest()
        return cls(content=content, compressed=gzip.compress(content, 6, mtime=0), tag=digest[:32])


def _content(figure: DrawnFigure, form: FigureForm, scheme: Scheme) -> bytes:
    if form == "json":
        return figure.model_dump_json().encode()
    if form == "vega.json":
        chart = figure.described_chart(scheme=scheme)
        return json.dumps(chart, ensure_ascii=False, separators=(",", ":")).encode()
    return export(figure.picture(scheme=scheme), form)


class KeptFigures:
    """A figure is kept until something happens in its campaign, and what is believed of the space,
    which costs most, until a trial says something else.

    No connection to the database is held while anything is worked out.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sources: Kept[FigureSource] = Kept(SOURCES)
        self._beliefs: Kept[CampaignBelief] = Kept(SOURCES)
        self._offers: Kept[FigureOffers] = Kept(FIGURES)
        self._figures: Kept[DrawnFigure] = Kept(FIGURES)
        self._files: Kept[FigureFile] = Kept(FILES)

    def offers(self, campaign_id: int) -> FigureOffers:
        """Return which figures a campaign has, and why not the others; raises NotFound."""
        event = self.last_event(campaign_id)
        return self._offers.of((campaign_id, event), lambda: self._offered(campaign_id, event))

    def figure(self, campaign_id: int, kind: FigureKind, options: FigureOptions) -> DrawnFigure:
        """Return one figure.

        Raises:
            NotFound: there is no such campaign, or it has no such figure.
            InvalidInput: it has no such figure under these options.
        """
        event = self.last_event(campaign_id)
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
    ) -> FigureFile:
        """Return one figure as it is sent: its data, its chart, or a picture.

        Raises:
            NotFound, InvalidInput: as `figure` does.
            OSError: a picture could not be drawn.
        """
        event = self.last_event(campaign_id)
        figure = self.figure(campaign_id, kind, options)
        key = (campaign_id, event, kind, options, scheme, form)
        return self._files.of(key, lambda: FigureFile.of(_content(figure, form, scheme)))

    def last_event(self, campaign_id: int) -> int:
        """Return the id of a campaign's last event; raises NotFound."""
        with self._store.session() as session:
            found = newest_events(session, [campaign_id])
        if campaign_id not in found:
            raise NotFound("campaign", campaign_id)
        return found[campaign_id]

    def source(self, campaign_id: int, event: int) -> FigureSource:
        """Return a campaign as it stands after an event, its last; raises NotFound."""
        return self._sources.of((campaign_id, event), lambda: self._read(campaign_id))

    def _read(self, campaign_id: int) -> FigureSource:
        with self._store.session() as session:
            campaign = get_campaign(session, campaign_id)
            trials = all_trials(session, campaign_id)
            profile = profile_of(session, campaign_id) if campaign.request.slurm else None
            kept = earlier_observations(session, campaign_id) if campaign.started_from else []
        belief = CampaignBelief.of(campaign, trials, profile=profile, kept=kept)
        belief = self._beliefs.of(belief.key, lambda: belief)
        return FigureSource(campaign=campaign, trials=trials, belief=belief)

    def _offered(self, campaign_id: int, event: int) -> FigureOffers:
        source = self.source(campaign_id, event)
        with source.belief.lock:
            figures = [offer(kind, source) for kind in get_args(FigureKind)]
        return FigureOffers(
            campaign_id=campaign_id, simulated=source.campaign.simulated, figures=figures
        )

    def _made(
        self, campaign_id: int, event: int, kind: FigureKind, options: FigureOptions
    ) -> DrawnFigure:
        source = self.source(campaign_id, event)
        fits = DEFINITIONS[kind].rests_on != "trials"
        with source.belief.lock if fits else nullcontext():
            why = missing(kind, source)
            if why:
                reason = f"campaign {campaign_id} has no figure of {kind}: {why}"
                raise NotFound("figure", kind, reason=reason)
            return DEFINITIONS[kind].make(source, options)
