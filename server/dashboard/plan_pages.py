"""The planning page and the form's preview, which answer while the user types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Body, Depends, Query, Request
from fastapi.responses import Response

from autotune.calibration import Calibration
from autotune.explanation.parts import MEMORY_WORDS, TIME_WORDS
from autotune.measurement.objectives import OBJECTIVE_UNITS
from autotune.prediction.scaling import scaling_series
from autotune.prediction.strategy import predict
from autotune.schemas.plans import CampaignPlan, PlannedStrategy
from autotune.schemas.predictions import Prediction
from autotune.schemas.requests import CampaignCreate, PredictionQuery
from autotune.schemas.resolution import transformer_of
from autotune.words.plans import HARDLY, tokens
from autotune.words.quantities import figure, percent, seconds
from search_spaces.catalog import model_from_hugging_face
from search_spaces.program import ProgramCapabilities
from search_spaces.strategy import Strategy
from server.api.dependencies import PlansOf, SettingsOf
from server.auth.permissions import CallerOf
from server.dashboard import form
from server.dashboard.bundle import bundle_name
from server.dashboard.prefill import shape_inputs, strategy_inputs
from server.dashboard.rendering import render
from server.figures.parts import MEMORY_HUES, TIME_HUES
from server.figures.scaling import PredictedScaling
from server.figures.vega import HUES, Scheme
from server.programs import chosen_program, refusals_of

WIDTH = 1000.0
"""Width of a bar in SVG units; the page scales it."""

LEAST_SHARE = 0.01
"""Minimum share of all bars for a part in the legend."""

SEPARATOR = " · "
PAST_THE_END = 1.04


@dataclass(frozen=True, kw_only=True)
class BarPart:
    """One part of a stacked bar: its start and width, out of WIDTH."""

    name: str
    start: float
    width: float
    words: str


@dataclass(frozen=True, kw_only=True)
class StackedBar:
    """A stacked bar, with the interval of its total and an optional limit."""

    parts: Sequence[BarPart]
    low: float
    high: float
    words: str
    limit: float | None = None


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """A strategy of the table. `name` has the dimensions that differ; `filling` are the values to
    fill into a form."""

    planned: PlannedStrategy
    name: str
    time: StackedBar
    memory: StackedBar
    filling: str


def plan_context(plan: CampaignPlan) -> dict[str, Any]:
    """Return the data of a plan's fragments."""
    baseline = [plan.baseline] if plan.baseline else []
    shown = [*plan.best, *baseline]
    common, names = names_of([each.strategy for each in shown])
    longest = max((_time_for_a_token(each, high=True) for each in shown), default=1.0)
    largest = max([plan.machine.memory_gib, *(each.memory_high_gib for each in shown)])
    rows = [
        PlanRow(
            planned=each,
            name=name,
            time=time_bar(each, longest=longest),
            memory=memory_bar(
                each.memory_parts_gib,
                interval=(each.memory_low_gib, each.memory_high_gib),
                limit=plan.memory_limit_gib,
                largest=largest,
            ),
            filling=strategy_inputs(each.strategy),
        )
        for each, name in zip(shown, names, strict=True)
    ]
    return {
        "plan": plan,
        "unit": OBJECTIVE_UNITS[plan.objective],
        "rows": rows[: len(plan.best)],
        "baseline": rows[-1] if baseline else None,
        "common": SEPARATOR.join(common),
        "time_legend": _legend([each.time_parts_s for each in shown], TIME_WORDS),
        "memory_legend": _legend([each.memory_parts_gib for each in shown], MEMORY_WORDS),
        "found": gain_words(plan.gain.rate_gain) if plan.gain else "",
        "found_at_most": gain_words(plan.gain.rate_gain_high) if plan.gain else "",
        "break_even": tokens(plan.gain.break_even_tokens)
        if plan.gain and plan.gain.break_even_tokens and plan.gain.rate_gain >= HARDLY
        else "",
        "rests_on": _rests_on(plan),
    }


def memory_context(answer: Prediction) -> dict[str, Any]:
    """Return the data of the memory calculator for one strategy."""
    bar = None
    if answer.memory_gib is not None and answer.memory_limit_gib is not None:
        low, high = answer.memory_low_gib or 0.0, answer.memory_high_gib or 0.0
        bar = memory_bar(
            answer.memory_parts_gib,
            interval=(low, high),
            limit=answer.memory_limit_gib,
            largest=max(answer.machine.memory_gib, high),
        )
    parts = [
        (name, MEMORY_WORDS[name], gib, gib / (answer.memory_gib or 1.0))
        for name, gib in answer.memory_parts_gib.items()
        if gib
    ]
    return {
        "answer": answer,
        "bar": bar,
        "parts": sorted(parts, key=lambda part: -part[2]),
    }


def gain_words(share: float) -> str:
    return f"< {100 * HARDLY:g} %" if share < HARDLY else f"{100 * share:+.0f} %"


def names_of(strategies: Sequence[Strategy]) -> tuple[list[str], list[str]]:
    """Return the dimensions that all strategies share, and each one's other dimensions as a line; a
    single strategy shares none."""
    split = [each.short().split(SEPARATOR) for each in strategies]
    common = [word for word in split[0] if all(word in words for words in split)] if split else []
    if len(split) < 2 or any(set(words) <= set(common) for words in split):
        common = []
    return common, [SEPARATOR.join(w for w in words if w not in common) for words in split]


def time_bar(planned: PlannedStrategy, *, longest: float) -> StackedBar:
    """Return the time per token by part, relative to the `longest` bar."""
    whole = planned.iteration_time_s
    scale = WIDTH * _time_for_a_token(planned) / whole / longest
    words = ", ".join(
        f"{percent(time / whole)} {TIME_WORDS[name]}"
        for name, time in sorted(planned.time_parts_s.items(), key=lambda item: -item[1])
        if time / whole >= LEAST_SHARE
    )
    return StackedBar(
        parts=_parts(planned.time_parts_s, TIME_WORDS, scale, seconds),
        low=scale * planned.iteration_time_low_s,
        high=scale * planned.iteration_time_high_s,
        words=f"a step of {seconds(whole)}: {words}",
    )


def memory_bar(
    parts_gib: Mapping[str, float],
    *,
    interval: tuple[float, float],
    limit: float,
    largest: float,
) -> StackedBar:
    """Return the memory by part, relative to the usable memory of a GPU."""
    scale = WIDTH / (PAST_THE_END * largest)
    whole = sum(parts_gib.values())
    words = ", ".join(
        f"{figure(gib)} GiB {MEMORY_WORDS[name]}"
        for name, gib in sorted(parts_gib.items(), key=lambda item: -item[1])
        if gib / whole >= LEAST_SHARE
    )
    return StackedBar(
        parts=_parts(parts_gib, MEMORY_WORDS, scale, lambda gib: f"{figure(gib)} GiB"),
        low=scale * interval[0],
        high=scale * interval[1],
        words=f"{figure(whole)} of {figure(limit)} GiB: {words}",
        limit=scale * limit,
    )


def _parts(values: Mapping[str, float], words: Mapping[str, str], scale: float, shown: Any) -> Any:
    parts, start = [], 0.0
    for name in words:
        width = scale * values.get(name, 0.0)
        if width > 0.0:
            text = f"{words[name]}: {shown(values[name])}"
            parts.append(BarPart(name=name, start=start, width=width, words=text))
        start += width
    return parts


def _time_for_a_token(planned: PlannedStrategy, *, high: bool = False) -> float:
    return 1.0 / (planned.tokens_per_s_low if high else planned.tokens_per_s)


def _legend(
    drawn: Sequence[Mapping[str, float]], words: Mapping[str, str]
) -> list[tuple[str, str]]:
    return [
        (name, words[name])
        for name in words
        if any(parts.get(name, 0.0) >= LEAST_SHARE * sum(parts.values()) for parts in drawn)
    ]


def _rests_on(plan: CampaignPlan) -> str:
    """Return what predictions are based on if there are no trials of the machine; otherwise
    empty."""
    if plan.started_from:
        return ""
    kind = "simulated" if plan.simulated else "measured"
    return f"priors for its kind of machine ({plan.machine.gpu}) and on no {kind} trial"


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
        "adapters": form.adapter_choices(settings.adapters_dir),
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
    return shape_inputs(model_from_hugging_face(config, name="custom"))


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

    strategy: Strategy
    """The strategy in question."""

    def query(self) -> dict[str, Any]:
        return self.model_dump(include=PREDICTED, exclude_unset=True)


PREDICTED = set(StrategyInPlan.model_fields) & set(PredictionQuery.model_fields)


@dataclass(frozen=True, kw_only=True)
class PredictionBasis:
    """What predictions of the strategy are made from."""

    query: PredictionQuery
    calibration: Calibration
    program: ProgramCapabilities


def _basis(
    chosen: Annotated[StrategyInPlan, Body()],
    plans: PlansOf,
    settings: SettingsOf,
    caller: CallerOf,
) -> PredictionBasis:
    query = PredictionQuery.model_validate(chosen.query())
    return PredictionBasis(
        query=query,
        calibration=plans.calibration(chosen, owner=caller.name, as_admin=caller.is_admin),
        program=chosen_program(query, settings, as_admin=caller.is_admin),
    )


BasisOf = Annotated[PredictionBasis, Depends(_basis)]


@router.post("/fragments/memory")
def memory(request: Request, basis: BasisOf, settings: SettingsOf, caller: CallerOf) -> Response:
    refusals = refusals_of(basis.query, settings, as_admin=caller.is_admin)
    answer = predict(basis.query, basis.calibration, program=basis.program, refusals=refusals)
    return render(request, "_memory.html", memory_context(answer))


@router.post("/fragments/scaling")
def scaling(request: Request, basis: BasisOf) -> Response:
    series = scaling_series(
        basis.calibration,
        transformer_of(basis.query.model),
        basis.query.strategy,
        nodes=basis.query.over_nodes,
        program=basis.program,
    )
    charts = [(each, PredictedScaling.of(each)) for each in series]
    return render(request, "_scaling.html", {"charts": charts})
