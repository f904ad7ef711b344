"""The application factory."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from server.api import (
    access,
    campaigns,
    catalog,
    comparisons,
    diagnoses,
    events,
    figures,
    health,
    imports,
    metrics,
    predictions,
    recommendations,
    trials,
    users,
)
from server.api.answers import Answers, Compression, ConditionalAnswers
from server.api.campaign_cache import CampaignCache
from server.api.dependencies import exact_path, known_filters
from server.api.description import SUMMARY, TITLE, described, operation_id
from server.api.event_feed import EventFeed
from server.api.limits import ConcurrencyLimit, RequestLimit, StreamLimit
from server.api.metrics import ServiceMetrics
from server.api.planning import Plans
from server.api.request_record import RequestRecord
from server.auth.authentication import Authentication, Authenticator
from server.auth.origin import OriginGuard, TrustedHosts
from server.auth.permissions import within_scope
from server.cache import Cache
from server.dashboard import routes as dashboard
from server.dashboard import sign_in
from server.data_folder import closed_folder
from server.pace import PACE, Pace
from server.problems import install
from server.settings import Settings
from server.store import Store
from server.store.campaign_list import CampaignList

RESOURCES = (
    campaigns,
    imports,
    trials,
    recommendations,
    comparisons,
    figures,
    catalog,
    predictions,
    diagnoses,
    events,
    access,
    users,
)


WRITE_PATIENCE_S = 2.0
"""Seconds that a request waits for another process to release the lock of an SQLite file."""


class Application(FastAPI):
    """The service, with its own middleware order and API description."""

    def build_middleware_stack(self) -> ASGIApp:
        """Return the middlewares with authentication around all others, so that refusals and
        failures need it, too."""
        inner = Authentication(
            super().build_middleware_stack(),
            authenticator=self.state.authenticator,
            settings=self.state.settings,
            sign_in_page=lambda request, to: sign_in.sign_in_page(request, to=to),
        )
        return RequestRecord(inner, metrics=self.state.metrics)

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = described(super().openapi())
        return self.openapi_schema


def create_app(settings: Settings, *, pace: Pace = PACE) -> FastAPI:
    """Return the service, after upgrading its database.

    Raises:
        InvalidInput: the database's URL is invalid, or a secret's file cannot be used.
    """
    closed_folder(closed_folder(settings.data_dir) / settings.trials_dir.name)
    store = Store(settings.url, patience_s=WRITE_PATIENCE_S)
    store.upgrade()
    app = Application(
        title="autotune",
        version=version("autotune"),
        summary=TITLE,
        description=SUMMARY,
        lifespan=_lifespan,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        routes=_routes(),
        redirect_slashes=False,  # one spelling of each address
    )
    users = store if settings.group else None
    app.state.authenticator = Authenticator(settings.service_token(), store=users)
    app.state.store, app.state.settings, app.state.pace = store, settings, pace
    cache = Cache()
    app.state.campaigns = CampaignCache(store, cache)
    app.state.answers = Answers(app.state.campaigns, cache)
    app.state.campaign_list = CampaignList(store, cache)
    app.state.campaign_list.refresh()
    app.state.plans = Plans(store, settings, cache)
    app.state.stopping = threading.Event()
    app.state.feed = EventFeed(store, poll_s=pace.stream_poll_s, stopping=app.state.stopping)
    app.state.metrics = ServiceMetrics(store)
    app.add_middleware(StreamLimit)
    app.add_middleware(RequestLimit)
    app.add_middleware(ConcurrencyLimit)
    app.add_middleware(ConditionalAnswers)
    app.add_middleware(Compression)
    app.add_middleware(OriginGuard, hosts=TrustedHosts.of(settings))
    install(app)
    dashboard.mount_files(app)
    return app


@cache
def _routes() -> list[BaseRoute]:
    """Return all routes, except static files of the pages.

    Cached per process: FastAPI takes a twentieth of a second to read the signatures.
    """
    router = APIRouter(
        generate_unique_id_function=operation_id,
        dependencies=[Depends(exact_path), Depends(within_scope)],
    )
    api = APIRouter(dependencies=[Depends(known_filters)])
    for resource in RESOURCES:
        api.include_router(resource.router)
    router.include_router(api, prefix="/api/v1")
    for module in (health, metrics, dashboard, sign_in):
        router.include_router(module.router)
    return router.routes


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.stopping.set()
    app.state.store.close()
