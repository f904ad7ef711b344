"""Routes of pages and their fragments, which a page's script inserts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import FileResponse, Response
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles

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
    campaign_views,
    comparison_page,
    diagnosis_page,
    form,
    pages,
    plan_pages,
    prefill,
)
from server.dashboard.bundle import bundle_path
from server.dashboard.campaign_rows import ListQuestion
from server.dashboard.rendering import HERE, render
from server.store import NotFound
from server.store.campaign_list import NEWEST_FIRST
from server.store.campaigns import get_campaign
from server.store.errors import NotAllowed
from server.store.users import usage_by_user

RECENT_DAYS = 30
YEAR_S = 365 * 24 * 3600

SWAGGER_UI = Path(str(files("fastapi_offline"))) / "static"
"""The package serves an application of its own; only its copy of Swagger UI is used."""
POLICY = "Content-Security-Policy"
ICONS = "; img-src 'self' data:"
"""Swagger UI's stylesheet embeds its icons."""

router = APIRouter(include_in_schema=False)
router.include_router(plan_pages.router)
router.include_router(comparison_page.router)
router.include_router(diagnosis_page.router)


class RevalidatedStaticFiles(StaticFiles):
    """Static files that browsers always revalidate, so that scripts of two versions are never
    combined."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers["Cache-Control"] = "no-cache"
        return response


def mount_files(app: FastAPI) -> None:
    app.mount("/static", RevalidatedStaticFiles(directory=HERE / "static"), name="static")
    app.mount("/reference/reader", StaticFiles(directory=SWAGGER_UI), name="reader")


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


async def _list_query(
    owner: OwnerFilter = "",
    search: Search = "",
    sort: CampaignSort = NEWEST_FIRST,
    cursor: Cursor = None,
) -> ListQuestion:
    return ListQuestion(owner=owner, search=search, sort=sort, cursor=cursor)


@router.get("/")
@router.get("/fragments/campaigns")
def campaigns(
    request: Request,
    store: StoreOf,
    listing: CampaignListOf,
    caller: CallerOf,
    query: Annotated[ListQuestion, Depends(_list_query)],
) -> Response:
    template = "campaigns.html" if request.url.path == "/" else "_campaigns.html"
    context = campaign_rows.context(store, listing, query, reader=caller.reader)
    return render(request, template, context)


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
            filled = prefill.filled(found, request.query_params)
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
        "filled": filled,
    }
    return render(request, "new_campaign.html", context)


class AdminsRoute(APIRoute):
    """Responds with a page instead of a problem document to users who are no admins."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def page(request: Request) -> Response:
            try:
                return await handle(request)
            except NotAllowed:
                context = {"here": "for_admins"}
                return render(request, "for_admins.html", context, status=HTTPStatus.FORBIDDEN)

        return page


def group(request: Request, store: StoreOf) -> Response:
    with store.session() as session:
        users = usage_by_user(session, since=datetime.now(UTC) - timedelta(days=RECENT_DAYS))
    return render(request, "group.html", {"here": "group", "users": users, "days": RECENT_DAYS})


router.add_api_route("/group", group, route_class_override=AdminsRoute)


def _number(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() else 0
    return min(number, LARGEST_ID)


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


@router.get("/reference")
def api_reference(request: Request) -> Response:
    answer = render(request, "reference.html", {"here": "reference"})
    answer.headers[POLICY] += ICONS
    return answer


# Included last: its `/campaigns/{name}` also matches `/campaigns/new`.
router.include_router(campaign_views.router)
