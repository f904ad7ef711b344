"""A campaign's page, and the fragments of it that its script inserts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from autotune.schemas.choices import TrialState
from autotune.schemas.wire import TrialPurpose
from server.api.answers import Answers
from server.api.campaign_cache import CampaignCache
from server.api.dependencies import (
    LARGEST_ID,
    AnswersOf,
    CampaignId,
    CampaignsOf,
    SettingsOf,
    StoreOf,
)
from server.auth.permissions import Caller, caller_of
from server.dashboard import pages
from server.dashboard.rendering import HEADERS, render, rendered
from server.dashboard.trial_table import TableQuestion
from server.figures.kinds import FigureOptions
from server.figures.trajectory import NOTHING_YET
from server.settings import Settings
from server.store import NotFound, Store

MOST_ROWS = 5000
MOST_FOLDS = 20
NONE_UNFOLDED: list[str] = []

router = APIRouter()


@dataclass(frozen=True, kw_only=True)
class CampaignViews:
    """The sources of a campaign's page and fragments, and the responses with them; reading raises
    NotFound if the campaign does not exist."""

    store: Store
    campaigns: CampaignCache
    answers: Answers
    settings: Settings

    def html(
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

    def trajectory(self, campaign_id: int, event: int) -> str:
        try:
            figure = self.campaigns.figure(campaign_id, event, "trajectory", FigureOptions())
        except NotFound:
            return NOTHING_YET
        return figure.caption

    def besides(self, campaign_id: int, caller: Caller, event: int) -> Hashable:
        """Return what a response depends on besides the event: its reader, elapsed times, and
        whether there is a log."""
        campaign = self.campaigns.campaign(campaign_id, event)
        logged = None
        if campaign.pending:
            logged = pages.logged_trial(self.campaigns.source(campaign_id, event), self.settings)
        return pages.times_shown(campaign), logged, caller


async def _views(
    store: StoreOf, campaigns: CampaignsOf, answers: AnswersOf, settings: SettingsOf
) -> CampaignViews:
    return CampaignViews(store=store, campaigns=campaigns, answers=answers, settings=settings)


CampaignViewsOf = Annotated[CampaignViews, Depends(_views)]


class PageRoute(APIRoute):
    """Responds with a page instead of a problem document if the campaign does not exist."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def page(request: Request) -> Response:
            try:
                return await handle(request)
            except NotFound:
                return missing(request, request.path_params["campaign_id"])

        return page


def campaign(request: Request, campaign_id: CampaignId, views: CampaignViewsOf) -> Response:
    """Return the page. It includes the explanation if one is stored; otherwise the page's script
    requests it. The query string is also read by scripts."""
    caller = caller_of(request.scope)

    def whole(event: int) -> bytes:
        source = views.campaigns.source(campaign_id, event)
        recommendation = views.campaigns.recommendation(campaign_id, event)
        with views.store.session() as session:
            context = pages.campaign_context(
                session,
                source,
                event,
                recommendation=recommendation,
                explanation=views.campaigns.written_explanation(campaign_id, event),
                trajectory=views.trajectory(campaign_id, event),
                logged=pages.logged_trial(source, views.settings),
                settings=views.settings,
            )
        context["group"] = views.settings.group
        return rendered("campaign.html", context, caller=caller)

    besides = partial(views.besides, campaign_id, caller)
    return views.html(request, campaign_id, whole, besides=besides, by_query=False)


router.add_api_route("/campaigns/{campaign_id:positive}", campaign, route_class_override=PageRoute)


@router.get("/campaigns/{name}")
def missing(request: Request, name: str) -> Response:
    context = {"here": "missing", "campaign_id": name}
    return render(request, "missing.html", context, status=HTTPStatus.NOT_FOUND)


@router.get("/campaigns/{campaign_id:positive}/fragments/progress")
def progress(request: Request, campaign_id: CampaignId, views: CampaignViewsOf) -> Response:
    """Return the header and the running and waiting trials, each as one element."""
    caller = caller_of(request.scope)

    def both(event: int) -> bytes:
        source = views.campaigns.source(campaign_id, event)
        with views.store.session() as session:
            logged = pages.logged_trial(source, views.settings)
            context = pages.progress_context(session, source, logged=logged)
        return rendered("_progress.html", context, caller=caller)

    besides = partial(views.besides, campaign_id, caller)
    return views.html(request, campaign_id, both, besides=besides)


@router.get("/campaigns/{campaign_id:positive}/fragments/outcome")
def outcome(request: Request, campaign_id: CampaignId, views: CampaignViewsOf) -> Response:
    """Return the recommendation and its launch files, each as one element."""

    def both(event: int) -> bytes:
        source = views.campaigns.source(campaign_id, event)
        recommendation = views.campaigns.recommendation(campaign_id, event)
        return rendered("_outcome.html", pages.recommendation_context(source, recommendation))

    return views.html(request, campaign_id, both)


@router.get("/campaigns/{campaign_id:positive}/fragments/explanation")
def explanation(request: Request, campaign_id: CampaignId, views: CampaignViewsOf) -> Response:
    def why(event: int) -> bytes:
        found = views.campaigns.explanation(campaign_id, event)
        source = views.campaigns.source(campaign_id, event)
        return rendered("_explanation.html", pages.failure_context(source, found, views.settings))

    return views.html(request, campaign_id, why)


async def _table_query(
    state: TrialState | Literal[""] = "",
    purpose: TrialPurpose | Literal[""] = "",
    numbers: Annotated[str, Query(max_length=10_000, pattern=r"^(\d{1,9}(,\d{1,9})*)?$")] = "",
    sort: Annotated[str, Query(max_length=50)] = TableQuestion.sort,
    shown: Annotated[int, Query(ge=1, le=MOST_ROWS)] = TableQuestion.shown,
    also: Annotated[int, Query(ge=0, le=LARGEST_ID)] = 0,
    unfolded: Annotated[list[str], Query(max_length=MOST_FOLDS)] = NONE_UNFOLDED,
) -> TableQuestion:
    return TableQuestion(
        state=TrialState(state) if state else None,
        purpose=purpose or None,
        numbers=frozenset(map(int, filter(None, numbers.split(",")))),
        sort=sort,
        shown=shown,
        also=also,
        unfolded=unfolded,
    )


@router.get("/campaigns/{campaign_id:positive}/fragments/trials")
def trials(
    request: Request,
    campaign_id: CampaignId,
    views: CampaignViewsOf,
    query: Annotated[TableQuestion, Depends(_table_query)],
) -> Response:
    """Return rows of the trial table with their heading; an empty filter is ignored."""

    def page(event: int) -> bytes:
        source = views.campaigns.source(campaign_id, event)
        with views.store.session() as session:
            context = pages.rows_context(session, source, query)
        return rendered("_rows.html", context)

    return views.html(request, campaign_id, page)
