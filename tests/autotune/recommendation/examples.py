"""A campaign and its trials, with figures that follow from a few seconds given."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from autotune.measurement import AccumulationMeasurement, metrics
from autotune.recommendation.recommendation import recommend
from autotune.resolution import machine_shape, model_shape, strategy_shape
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState, Objective, TrialState
from autotune.schemas.recommendations import Recommendation
from autotune.schemas.requests import CampaignCreate, ProtocolSpec
from autotune.schemas.trials import Accumulation, Routing, Trial
from autotune.schemas.wire import TrialPurpose
from search_spaces.catalog import load_machine, load_model
from search_spaces.strategy import Strategy

MODEL = load_model("gpt-22b")
MACHINE = load_machine("frontier")
NOW = datetime(2026, 5, 1, tzinfo=UTC)


def strategy(
    *,
    tp: int = 2,
    pp: int = 4,
    mbs: int = 1,
    gas: int | None = None,
    nodes: int = 2,
    **others: Any,
) -> Strategy:
    """Return one of a global batch of 64 samples where no GAS is given."""
    replicas = nodes * 8 // (tp * pp)
    return Strategy(
        tensor_parallel=tp,
        pipeline_parallel=pp,
        micro_batch_size=mbs,
        gradient_accumulation_steps=gas or 64 // (mbs * replicas),
        num_nodes=nodes,
        **{"zero_stage": 1} | others,
    )


def campaign(
    *,
    state: CampaignState = CampaignState.DONE,
    confirmations: int = 3,
    objective: Objective = "tokens_per_s",
    simulated: bool = False,
    tokens: float | None = 1e9,
    min_headroom_gib: float = 0.0,
    **changes: Any,
) -> Campaign:
    request = CampaignCreate(
        model="gpt-22b",
        machine="frontier",
        nodes=4,
        evaluator="simulated",
        objective=objective,
        min_headroom_gib=min_headroom_gib,
        protocol=ProtocolSpec(confirmations=confirmations),
        tokens=tokens,
    )
    fields: dict[str, Any] = {
        "id": 1,
        "name": "",
        "state": state,
        "reason": "",
        "simulated": simulated,
        "request": request,
        "model": model_shape(MODEL),
        "machine": machine_shape(MACHINE),
        "created_at": NOW,
        "started_at": NOW,
        "finished_at": None,
        "trials": 0,
        "pending": 0,
        "failures": 0,
        "confirmations": 0,
        "node_hours": 0.0,
    }
    return Campaign(**fields | changes)


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
    return Trial(
        id=1000 - number,
        campaign_id=1,
        number=number,
        purpose=purpose,
        strategy=strategy_shape(subject),
        token=f"t{number}",
        state=state,
        simulated=False,
        created_at=NOW,
        started_at=NOW,
        finished_at=NOW,
        duration_s=60.0,
        node_hours=node_hours,
        predicted_iteration_time_s=9.9,
        predicted_memory_gib=41.0,
        metrics=figures,
        accumulations=shown if ok else [],
        peak_memory_gib_by_rank=[],
        error=None if ok else error,
        log_path=None,
        host=None,
        versions={},
    )


A, B, C, D = strategy(tp=1), strategy(tp=2), strategy(tp=4), strategy(tp=1, pp=8)


def answer(trials: list[Trial], **settings: Any) -> Recommendation:
    recommendation = recommend(campaign(**settings), trials)
    assert recommendation is not None
    return recommendation
