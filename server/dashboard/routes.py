"""Routes of pages and their fragments, which a page's script inserts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import FileResponse, Response
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles

from autotune.schemas.choices import TrialState
from autotune.schemas.wire import TrialPurpose
from server.api.dependencies import (
    LARGEST_ID,
    CampaignId,
    CampaignListOf,
    CampaignSort,
    Cursor,
    OwnerFilter,
    Search,
    SettingsOf,
    StoreOf,
    TrialNumber,
)
from server.auth.permissions import CallerOf, demand_seen
from server.dashboard import (
    campaign_rows,
    chart_routes,
    comparison_page,
    form,
    pages,
    plan_routes,
    prefill,
    reference,
)
from server.dashboard.bundle import bundle_path
from server.dashboard.campaign_rows import ListQuestion
from server.dashboard.campaign_views import CampaignViewsOf
from server.dashboard.rendering import HERE, render
from server.store import NotFound
from server.store.campaign_list import NEWEST_FIRST
from server.store.campaigns import get_campaign

MOST_ROWS = 5000
MOST_FOLDS = 20
NONE_UNFOLDED: list[str] = []
YEAR_S = 365 * 24 * 3600

router = APIRouter(include_in_schema=False)
router.include_router(plan_routes.router)
router.include_router(chart_routes.router)
router.include_router(comparison_page.router)
router.include_router(reference.router)


class StaticFilesKeptFresh(StaticFiles):
    """Static files that browsers always revalidate, so that scripts of two versions are never
    combined."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers["Cache-Control"] = "no-cache"
        return response


def mount_files(app: FastAPI) -> None:
    app.mount("/static", StaticFilesKeptFresh(directory=HERE / "static"), name="static")


@router.get("/static/vega.js")
def vega(settings: SettingsOf) -> FileResponse:
    """Return the script for charts, built at the first request; its address includes the
    version."""
    path: Path = bundle_path(settings.data_dir / "cache")
    headers = {
        "Content-Encoding": "gzip",
        "Cache-Control": f"public, max-age={YEAR_S}, immutable",
    }
    return FileResponse(path, media_type="text/javascript", headers=headers)


@router.get("/")
def campaigns(
    request: Request,
    store: StoreOf,
    kept: CampaignListOf,
    caller: CallerOf,
    owner: OwnerFilter = "",
    search: Search = "",
    sort: CampaignSort = NEWEST_FIRST,
    cursor: Cursor = None,
) -> Response:
    asked = ListQuestion(owner=owner, search=search, sort=sort, cursor=cursor)
    context = campaign_rows.context(store, kept, asked, reader=caller.reader)
    return render(request, "campaigns.html", context)


@router.get("/fragments/campaigns")
def campaigns_fragment(
    request: Request,
    store: StoreOf,
    kept: CampaignListOf,
    caller: CallerOf,
    owner: OwnerFilter = "",
    search: Search = "",
    sort: CampaignSort = NEWEST_FIRST,
    cursor: Cursor = None,
) -> Response:
    asked = ListQuestion(owner=owner, search=search, sort=sort, cursor=cursor)
    context = campaign_rows.context(store, kept, asked, reader=caller.reader)
    return render(request, "_campaigns.html", context)


@router.get("/campaigns/new")
def new_campaign(
    request: Request, settings: SettingsOf, store: StoreOf, caller: CallerOf, like: str = ""
) -> Response:
    """Return the form, filled in from the campaign `like` and the query."""
    filled = None
    with store.session() as session, suppress(NotFound):
        if like:
            number = _number(like)
            demand_seen(session, caller, number)
            found = get_campaign(session, number)
            # The form is for searches.
            filled = None if found.request.study else prefill.filled(found, request.query_params)
    context = {
        "here": "new",
        "models": form.model_choices(),
        "machines": form.machine_choices(),
        "spaces": form.space_choices(),
        "profiles": form.profile_choices(settings.profiles_dir),
        "adapters": form.adapter_choices(settings.adapters_dir),
        "shape_fields": form.SHAPE_FIELDS,
        "layer_fields": form.LAYER_FIELDS,
        "dimension_fields": form.dimension_fields(),
        "searches": form.SEARCHES,
        "examples": form.examples(),
        "default": form.default_of,
        "mails": bool(settings.notice_smtp),
        "filled": filled,
    }
    return render(request, "new_campaign.html", context)


def _number(text: str) -> int:
    """Return a campaign's id from a query; 0, which no campaign has, if it is not a number."""
    number = int(text) if text.isascii() and text.isdecimal() else 0
    return min(number, LARGEST_ID)


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
    return views.page(request, campaign_id)


router.add_api_route("/campaigns/{campaign_id:positive}", campaign, route_class_override=PageRoute)


@router.get("/campaigns/{name}")
def missing(request: Request, name: str) -> Response:
    """Return the page for a campaign that does not exist."""
    context = {"here": "missing", "campaign_id": name}
    return render(request, "missing.html", context, status=HTTPStatus.NOT_FOUND)


@router.get("/campaigns/{campaign_id:positive}/fragments/progress")
def progress(request: Request, campaign_id: CampaignId, views: CampaignViewsOf) -> Response:
    """Return the header and the running and waiting trials, each as one element."""
    return views.progress(request, campaign_id)


@router.get("/campaigns/{campaign_id:positive}/fragments/outcome")
def outcome(request: Request, campaign_id: CampaignId, views: CampaignViewsOf) -> Response:
    """Return the recommendation and its launch files, each as one element."""
    return views.outcome(request, campaign_id)


@router.get("/campaigns/{campaign_id:positive}/fragments/explanation")
def explanation(request: Request, campaign_id: CampaignId, views: CampaignViewsOf) -> Response:
    return views.explanation(request, campaign_id)


@router.get("/campaigns/{campaign_id:positive}/fragments/trials")
def trials(
    request: Request,
    campaign_id: CampaignId,
    views: CampaignViewsOf,
    state: TrialState | Literal[""] = "",
    purpose: TrialPurpose | Literal[""] = "",
    sort: Annotated[str, Query(max_length=50)] = pages.NEWEST_FIRST,
    shown: Annotated[int, Query(ge=1, le=MOST_ROWS)] = pages.ROWS,
    also: Annotated[int, Query(ge=0, le=LARGEST_ID)] = 0,
    unfolded: Annotated[list[str], Query(max_length=MOST_FOLDS)] = NONE_UNFOLDED,
) -> Response:
    """Return rows of the trial table with their heading; an empty filter is ignored."""
    return views.rows(
        request,
        campaign_id,
        state=TrialState(state) if state else None,
        purpose=purpose or None,
        sort=sort,
        shown=shown,
        also=also,
        unfolded=unfolded,
    )


@router.get("/campaigns/{campaign_id:positive}/fragments/trials/{number:positive}")
def trial(
    request: Request,
    campaign_id: CampaignId,
    number: TrialNumber,
    store: StoreOf,
    settings: SettingsOf,
) -> Response:
    with store.session() as session:
        context = pages.trial_context(session, campaign_id, number, settings)
    return render(request, "_trial.html", context)
