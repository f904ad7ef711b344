"""Views of a campaign's page and its fragments."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import Response

from server.api.answers import Answers
from server.api.campaign_cache import CampaignCache
from server.api.dependencies import (
    AnswersOf,
    CampaignsOf,
    SettingsOf,
    StoreOf,
)
from server.auth.permissions import caller_of
from server.dashboard import pages
from server.dashboard.rendering import HEADERS, rendered
from server.dashboard.trial_table import TableQuestion
from server.figures.kinds import FigureOptions
from server.figures.trajectory import NOTHING_YET
from server.settings import Settings
from server.store import NotFound, Store


@dataclass(frozen=True, kw_only=True)
class CampaignViews:
    """Each method returns a response, or raises NotFound if the campaign does not exist."""

    store: Store
    campaigns: CampaignCache
    answers: Answers
    settings: Settings

    def page(self, request: Request, campaign_id: int) -> Response:
        """Return the page. It includes the explanation if one is stored; otherwise the page's
        script requests it. The query string is also read by scripts."""

        caller = caller_of(request.scope)

        def whole(event: int) -> bytes:
            source = self.campaigns.source(campaign_id, event)
            recommendation = self.campaigns.recommendation(campaign_id, event)
            with self.store.session() as session:
                context = pages.campaign_context(
                    session,
                    source,
                    event,
                    recommendation=recommendation,
                    explanation=self.campaigns.written_explanation(campaign_id, event),
                    trajectory=self._trajectory(campaign_id, event),
                    logged=pages.logged_trial(source, self.settings),
                )
            return rendered("campaign.html", context, caller=caller)

        def besides(event: int) -> Hashable:
            return self._changing(campaign_id, event), caller

        return self._html(request, campaign_id, whole, besides=besides, by_query=False)

    def progress(self, request: Request, campaign_id: int) -> Response:
        caller = caller_of(request.scope)

        def both(event: int) -> bytes:
            source = self.campaigns.source(campaign_id, event)
            with self.store.session() as session:
                logged = pages.logged_trial(source, self.settings)
                context = pages.progress_context(session, source, logged=logged)
            return rendered("_progress.html", context, caller=caller)

        return self._html(
            request,
            campaign_id,
            both,
            besides=lambda event: (self._changing(campaign_id, event), caller),
        )

    def outcome(self, request: Request, campaign_id: int) -> Response:
        def both(event: int) -> bytes:
            source = self.campaigns.source(campaign_id, event)
            recommendation = self.campaigns.recommendation(campaign_id, event)
            return rendered("_outcome.html", pages.recommendation_context(source, recommendation))

        return self._html(request, campaign_id, both)

    def explanation(self, request: Request, campaign_id: int) -> Response:
        def why(event: int) -> bytes:
            explanation = self.campaigns.explanation(campaign_id, event)
            return rendered("_explanation.html", {"explanation": explanation})

        return self._html(request, campaign_id, why)

    def rows(self, request: Request, campaign_id: int, asked: TableQuestion) -> Response:
        def page(event: int) -> bytes:
            source = self.campaigns.source(campaign_id, event)
            with self.store.session() as session:
                context = pages.rows_context(session, source, asked)
            return rendered("_rows.html", context)

        return self._html(request, campaign_id, page)

    def _trajectory(self, campaign_id: int, event: int) -> str:
        try:
            figure = self.campaigns.figure(campaign_id, event, "trajectory", FigureOptions())
        except NotFound:
            return NOTHING_YET
        return figure.caption

    def _changing(self, campaign_id: int, event: int) -> Hashable:
        """Return what changes without an event: elapsed times, and whether there is a log."""
        campaign = self.campaigns.campaign(campaign_id, event)
        logged = None
        if campaign.pending:
            logged = pages.logged_trial(self.campaigns.source(campaign_id, event), self.settings)
        return pages.times_shown(campaign), logged

    def _html(
        self,
        request: Request,
        campaign_id: int,
        make: Callable[[int], bytes],
        *,
        besides: Callable[[int], Hashable] = lambda _: None,
        by_query: bool = True,
    ) -> Response:
        return self.answers.of(
            request,
            campaign_id,
            make,
            media_type="text/html",
            headers=HEADERS,
            besides=besides,
            by_query=by_query,
        )


async def _views(
    store: StoreOf, campaigns: CampaignsOf, answers: AnswersOf, settings: SettingsOf
) -> CampaignViews:
    return CampaignViews(store=store, campaigns=campaigns, answers=answers, settings=settings)


CampaignViewsOf = Annotated[CampaignViews, Depends(_views)]
