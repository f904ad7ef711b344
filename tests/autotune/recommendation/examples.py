"""A campaign and its trials, with figures that follow from a few seconds given."""

from __future__ import annotations

from typing import Any

from autotune.measurement.metrics import AccumulationMeasurement, metrics
from autotune.recommendation.recommendation import recommend
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState, Objective, TrialState
from autotune.schemas.recommendations import Recommendation
from autotune.schemas.trials import Accumulation, Routing, Trial
from autotune.schemas.wire import TrialPurpose
from search_spaces.strategy import Strategy
from tests.autotune import records
from tests.autotune.records import MACHINE, MODEL, request, strategy


def campaign(
    *,
    state: CampaignState = CampaignState.DONE,
    confirmations: int = 3,
    objective: Objective = "tokens_per_s",
    simulated: bool = False,
    tokens: float | None = 1e9,
    min_headroom_gib: float | None = None,
    baseline: str | None = None,
    **changes: Any,
) -> Campaign:
    wanted = request(
        nodes=4,
        objective=objective,
        min_headroom_gib=min_headroom_gib,
        protocol={"confirmations": confirmations},
        tokens=tokens,
        baseline=baseline,
    )
    fields = {"state": state, "simulated": simulated, "request": wanted}
    return records.campaign(**fields | changes)


def trial(
    number: int,
    subject: Strategy,
    *,
    seconds: float | None = None,
    spread: float = 0.0,
    purpose: TrialPurpose = "search",
    state: TrialState = TrialState.OK,
    peak: float | None = 40.0,
    probes: tuple[int, ...] | None = None,
    node_hours: float | None = 0.5,
    error: str = "out of memory",
    trainer_parameters: float | None = None,
    routing: Routing | None = None,
) -> Trial:
    """One whose iteration takes `seconds` at its own GAS, and a share of it at another.

    Where `probes` are given, its iterations were timed at these, and its figure follows by the law
    (an iteration is micro-batches and bubble alone).
    """
    ok = state is TrialState.OK
    timed = probes or (subject.gradient_accumulation_steps,)
    bubble = subject.pipeline_parallel - 1
    each = (seconds or 0.0) / (subject.gradient_accumulation_steps + bubble)
    measured = [
        AccumulationMeasurement(
            gradient_accumulation_steps=gas,
            iteration_times_s=tuple(each * (gas + bubble) + d for d in (-spread, 0, spread)),
        )
        for gas in timed
    ]
    figures = (
        metrics(
            MODEL,
            MACHINE,
            subject,
            measured,
            peak_memory_gib=peak,
            trainer_parameters=trainer_parameters,
            routing=routing,
        )
        if ok
        else None
    )
    shown = [
        Accumulation(
            gradient_accumulation_steps=m.gradient_accumulation_steps,
            global_batch_size=1,
            iteration_time_s=m.iteration_time_s,
            tokens_per_s=1.0,
            measured=True,
            iteration_times_s=list(m.iteration_times_s),
        )
        for m in measured
    ]
    return records.trial(
        number,
        id=1000 - number,
        purpose=purpose,
        strategy=subject,
        state=state,
        node_hours=node_hours,
        predicted_iteration_time_s=9.9,
        predicted_memory_gib=41.0,
        metrics=figures,
        accumulations=shown if ok else [],
        error=None if ok else error,
    )


def measured_otherwise(subject: Trial, **figures: Any) -> Trial:
    """A trial with some of its figures changed."""
    assert subject.metrics is not None
    return subject.model_copy(update={"metrics": subject.metrics.model_copy(update=figures)})


def half_per_joule(subject: Trial) -> Trial:
    """A trial whose nodes drew twice as much."""
    assert subject.metrics is not None
    assert subject.metrics.tokens_per_joule is not None
    return measured_otherwise(subject, tokens_per_joule=subject.metrics.tokens_per_joule / 2)


A, B, C, D = strategy(tp=1), strategy(tp=2), strategy(tp=4), strategy(tp=1, pp=8)


def answer(trials: list[Trial], **settings: Any) -> Recommendation:
    recommendation = recommend(campaign(**settings), trials)
    assert recommendation is not None
    return recommendation
