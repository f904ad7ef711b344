"""Jinja2 templates, their filters, and the headers of every page."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from fastapi.templating import Jinja2Templates
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from autotune.answers.campaign import (
    best_projected_from,
    model_size,
    nothing_ran,
    reason_in_brief,
    searched_by,
    started_from,
    surrogate_start,
)
from autotune.answers.layout import in_words, utilisation
from autotune.answers.recommendation import (
    best_facts,
    costs,
    knob_rows,
    knob_sentence,
    neighbours,
    noise,
    runner_up_with_knobs,
    runners_up,
    verdicts,
)
from autotune.answers.trial import (
    iteration_expected,
    peak_memory,
    step_spread,
    trial_facts,
    why_chosen,
)
from autotune.baseline import baseline_line
from autotune.measurement.metrics import another_model
from autotune.measurement.objectives import OBJECTIVE_UNITS
from autotune.schemas.campaigns import Campaign, outcome_of, outcome_of_campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.comparisons import ComparedCampaign
from autotune.schemas.trials import Trial
from autotune.words.quantities import (
    age,
    count,
    duration,
    figure,
    mark,
    numeric_columns,
    percent,
    plural,
    probability,
    seconds,
    times,
)
from search_spaces.dimensions import TABLE, setting_text
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from server.auth.permissions import CALLER, Caller
from server.dashboard import campaign_rows, prefill
from server.figures.kinds import KINDS

HERE = Path(__file__).parent
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def render(
    request: Request, template: str, context: dict[str, Any], *, status: int = HTTPStatus.OK
) -> Response:
    caller, settings = request.scope.get(CALLER), request.app.state.settings
    context = {"caller": caller, "group": settings.group} | context
    return TEMPLATES.TemplateResponse(request, template, context, status, HEADERS)


def rendered(template: str, context: dict[str, Any], *, caller: Caller | None = None) -> bytes:
    return TEMPLATES.env.get_template(template).render({"caller": caller} | context).encode()


def title(campaign: Campaign) -> str:
    return campaign.name or f"Campaign {campaign.id}"


def outcome(campaign: Campaign) -> str:
    return outcome_of_campaign(campaign)


def compared_outcome(compared: ComparedCampaign) -> str:
    return outcome_of(compared.state, found=compared.winner is not None)


def objective_title(campaign: Campaign) -> str:
    return OBJECTIVE_UNITS[campaign.request.objective]


def rate_reached(compared: ComparedCampaign) -> str:
    """Return the rate of a campaign's best in its objective."""
    if compared.winner is None:
        return "–"
    reached = getattr(compared.winner.metrics, compared.objective)
    return f"{figure(reached)} {OBJECTIVE_UNITS[compared.objective]}"


def strategy_facts(strategy: Strategy, machine: Machine) -> list[tuple[str, str]]:
    """Return each dimension's label and value, followed by the replicas for those that divide
    them."""
    facts = {
        d: (d.label, setting_text(value))
        for d in TABLE
        for value in [strategy.value(d.name)]
        if not d.is_absent(value)
    }
    replicas = strategy.data_parallel(machine.gpus_per_node)
    return [
        *(fact for d, fact in facts.items() if d.divides_replicas),
        ("Data parallel", str(replicas)),
        *(fact for d, fact in facts.items() if not d.divides_replicas),
    ]


def unbroken(strategy_line: str) -> str:
    return strategy_line.replace(" ", "\N{NO-BREAK SPACE}").replace("·\N{NO-BREAK SPACE}", "· ")


def remark(trial: Trial) -> str:
    """Return the text in place of missing metrics: the error, why it waits, or where it runs."""
    if trial.error or trial.state is not TrialState.PENDING:
        return trial.error or ""
    if trial.phase is None:
        return "about to start"
    if trial.phase == "waiting" and trial.phase_reason:
        return trial.phase_reason
    job = f"job {trial.job_id}" if trial.job_id else ""
    place = ", ".join(filter(None, [job, f"on {trial.host}" if trial.host else ""]))
    return "; ".join(filter(None, [place, trial.phase_reason]))


def of_best(trial: Trial, campaign: Campaign) -> str:
    """Return a trial's rate over the campaign's best; a dash if they ran on different nodes."""
    reached = getattr(trial.metrics, campaign.request.objective, None)
    if not reached or not campaign.best_objective or trial.stands_for_nodes is not None:
        return "–"
    return percent(reached / campaign.best_objective)


FILTERS: dict[str, Callable[..., Any]] = {
    "age": age,
    "another_model": another_model,
    "baseline_line": baseline_line,
    "best_facts": best_facts,
    "best_projected_from": best_projected_from,
    "changed_inputs": prefill.changed_inputs,
    "compared_outcome": compared_outcome,
    "costs": costs,
    "count": count,
    "course_words": campaign_rows.course_words,
    "duration": duration,
    "figure": figure,
    "figure_title": lambda kind: KINDS[kind].named,
    "in_words": in_words,
    "iteration_expected": iteration_expected,
    "knob_rows": knob_rows,
    "knob_sentence": knob_sentence,
    "runner_up_with_knobs": runner_up_with_knobs,
    "mark": mark,
    "neighbours": neighbours,
    "next_campaign": prefill.address,
    "noise": noise,
    "nothing_ran": nothing_ran,
    "numeric_columns": numeric_columns,
    "objective_title": objective_title,
    "of_best": of_best,
    "outcome": outcome,
    "peak_memory": peak_memory,
    "percent": percent,
    "plural": plural,
    "probability": probability,
    "rate_reached": rate_reached,
    "reason_in_brief": reason_in_brief,
    "remark": remark,
    "runners_up": runners_up,
    "searched_by": searched_by,
    "seconds": seconds,
    "setting": setting_text,
    "size": model_size,
    "sparkline": campaign_rows.sparkline,
    "started_from": started_from,
    "step_spread": step_spread,
    "strategy_facts": strategy_facts,
    "strategy_inputs": prefill.strategy_inputs,
    "surrogate_start": surrogate_start,
    "times": times,
    "title": title,
    "trial_facts": trial_facts,
    "unbroken": unbroken,
    "utilisation": utilisation,
    "verdicts": verdicts,
    "why_chosen": why_chosen,
}


TEMPLATES = Jinja2Templates(
    env=Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
)
TEMPLATES.env.filters |= FILTERS
