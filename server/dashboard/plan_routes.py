"""The page on which a question is answered before anything runs, and its answers as one types."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Body, Query, Request
from fastapi.responses import Response

from autotune.schemas import CampaignCreate, PredictionQuery, ScalingQuery
from server.api.callers import CallerOf
from server.api.dependencies import PlansOf, SettingsOf, StoreOf
from server.api.predictions import prediction
from server.api.scaling import predicted
from server.dashboard import form
from server.dashboard.bundle import bundle_name
from server.dashboard.plan_pages import memory_context, plan_context
from server.dashboard.rendering import render
from server.figures.scaling import scaling_chart, scaling_table

router = APIRouter()

View = Annotated[Literal["page", "form"], Query(description="how much of it is shown")]


@router.get("/plan")
def page(request: Request, settings: SettingsOf) -> Response:
    context = {
        "here": "plan",
        "bundle": bundle_name(),
        "models": form.model_choices(),
        "machines": form.machine_choices(),
        "spaces": form.space_choices(),
        "profiles": form.profile_choices(settings.profiles_dir),
        "strategy_fields": form.strategy_fields(),
        "dimension_fields": form.dimension_fields(),
        "default": form.default_of,
    }
    return render(request, "plan.html", context)


@router.post("/fragments/plan")
def answer(
    request: Request,
    question: Annotated[CampaignCreate, Body()],
    plans: PlansOf,
    caller: CallerOf,
    view: View,
) -> Response:
    found = plans.of(question, owner=caller.name, as_admin=caller.is_admin)
    template = "_plan.html" if view == "page" else "_plan_brief.html"
    return render(request, template, plan_context(found))


@router.post("/fragments/memory")
def memory(
    request: Request,
    query: Annotated[PredictionQuery, Body()],
    store: StoreOf,
    settings: SettingsOf,
    caller: CallerOf,
) -> Response:
    answer = prediction(query, store, settings, caller)
    return render(request, "_memory.html", memory_context(answer))


@router.post("/fragments/scaling")
def scaling(
    request: Request,
    query: Annotated[ScalingQuery, Body()],
    store: StoreOf,
    settings: SettingsOf,
    caller: CallerOf,
) -> Response:
    study = predicted(query, store, settings, caller)
    charts = [
        {
            "series": series,
            "light": scaling_chart([series], simulated=False, scheme="light"),
            "dark": scaling_chart([series], simulated=False, scheme="dark"),
            "table": scaling_table([series], simulated=False),
        }
        for series in study.series
    ]
    return render(request, "_scaling.html", {"charts": charts})
