"""The planning page, which answers questions before anything runs, and its answers while the user
types."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Body, Query, Request
from fastapi.responses import Response

from autotune.prediction.scaling import scaling_study
from autotune.prediction.strategy import predict
from autotune.resolution import model_shape
from autotune.schemas.requests import CampaignCreate, PredictionQuery
from autotune.schemas.scaling import ScalingQuery
from autotune.schemas.shapes import StrategyShape
from search_spaces.catalog import model_from_hugging_face
from server.api.dependencies import PlansOf, SettingsOf
from server.auth.permissions import CallerOf
from server.dashboard import form
from server.dashboard.bundle import bundle_name
from server.dashboard.plan_pages import memory_context, plan_context
from server.dashboard.prefill import shape_inputs
from server.dashboard.rendering import render
from server.figures.parts import MEMORY_HUES, TIME_HUES
from server.figures.scaling import PredictedScaling
from server.figures.vega import HUES, Scheme
from server.programs import chosen_program, refusals_of

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


@router.get("/static/parts.css")
def part_colours() -> Response:
    """Return a style sheet with the figures' colours of the parts of time and memory."""
    light, dark = (
        "\n".join(
            f".part-{kind}-{part} {{ fill: {HUES[scheme][hue]}; }}"
            for kind, hues in (("time", TIME_HUES), ("memory", MEMORY_HUES))
            for part, hue in hues.items()
        )
        for scheme in get_args(Scheme)
    )
    style = f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
    return Response(style, media_type="text/css", headers={"Cache-Control": "no-cache"})


@router.post("/fragments/shape")
def shape(config: Annotated[dict[str, Any], Body()]) -> dict[str, str]:
    """Return the form's inputs for the model that a Hugging Face `config.json` describes."""
    return shape_inputs(model_shape(model_from_hugging_face(config, name="custom")))


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


class StrategyInPlan(CampaignCreate):
    """A strategy in addition to a question; its predictions use the same trials as the plan's."""

    strategy: StrategyShape
    """The strategy in question."""

    def query(self) -> dict[str, Any]:
        """Return the fields in common with a prediction query."""
        return self.model_dump(include=PREDICTED, exclude_unset=True)


PREDICTED = set(StrategyInPlan.model_fields) & set(PredictionQuery.model_fields)


@router.post("/fragments/memory")
def memory(
    request: Request,
    asked: Annotated[StrategyInPlan, Body()],
    plans: PlansOf,
    settings: SettingsOf,
    caller: CallerOf,
) -> Response:
    query = PredictionQuery.model_validate(asked.query())
    calibration = plans.calibration(asked, owner=caller.name, as_admin=caller.is_admin)
    program = chosen_program(query, settings, as_admin=caller.is_admin)
    refusals = refusals_of(query, settings, as_admin=caller.is_admin)
    answer = predict(query, calibration, program=program, refusals=refusals)
    return render(request, "_memory.html", memory_context(answer))


@router.post("/fragments/scaling")
def scaling(
    request: Request,
    asked: Annotated[StrategyInPlan, Body()],
    plans: PlansOf,
    settings: SettingsOf,
    caller: CallerOf,
) -> Response:
    query = ScalingQuery.model_validate(asked.query())
    calibration = plans.calibration(asked, owner=caller.name, as_admin=caller.is_admin)
    program = chosen_program(query, settings, as_admin=caller.is_admin)
    study = scaling_study(query, calibration, program=program)
    charts = [(series, PredictedScaling.of(series)) for series in study.series]
    return render(request, "_scaling.html", {"charts": charts})
