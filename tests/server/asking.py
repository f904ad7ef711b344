"""Campaigns as tests ask for them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy.orm import Session

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.requests import CampaignCreate
from autotune.schemas.resolution import machine_of, transformer_of
from autotune.schemas.trials import Expectation, Trial
from search_spaces.strategy import Strategy
from server.campaign.results import FinishedTrial, NewTrial
from server.store import Store
from server.store.campaigns import campaign_row, change_state, create_campaign
from server.store.trials import insert_trials

Given = ParamSpec("Given")
Result = TypeVar("Result")


def read(
    store: Store,
    call: Callable[Concatenate[Session, Given], Result],
    *args: Given.args,
    **options: Given.kwargs,
) -> Result:
    """Call a function of the store in a session of its own; return its result."""
    with store.session() as session:
        return call(session, *args, **options)


def write(
    store: Store,
    call: Callable[Concatenate[Session, Given], Result],
    *args: Given.args,
    **options: Given.kwargs,
) -> Result:
    """Call a function of the store in a transaction of its own; return its result."""
    with store.transaction() as session:
        return call(session, *args, **options)


def moved(store: Store, campaign: int, state: CampaignState, *, reason: str = "") -> None:
    """Put a campaign into a state."""
    with store.transaction() as session:
        change_state(session, campaign_row(session, campaign), state, reason=reason)


def body(**changes: Any) -> dict[str, Any]:
    """A small simulated campaign that takes all of its budget unless told otherwise."""
    fields: dict[str, Any] = {
        "name": "22B on Frontier",
        "model": "gpt-22b",
        "machine": "frontier",
        "nodes": 4,
        "pool_nodes": 8,
        "evaluator": "simulated",
        "space": {
            "tensor_parallel": [1, 2, 4, 8],
            "pipeline_parallel": [1, 2, 4, 8],
            "micro_batch_size": [1, 2, 4],
            "gradient_accumulation_steps": [8, 16],
            "zero_stage": [1],
            "num_nodes": [2, 4],
            "activation_checkpointing": "full",
            "precision": "bf16",
        },
        "budget": {"max_trials": 6},
        "protocol": {"confirmations": 1},
    }
    fields |= changes
    fields["budget"] = {"stop_early": False} | fields["budget"]
    return fields


def campaign_request(**changes: Any) -> CampaignCreate:
    return CampaignCreate.model_validate(body(**changes))


def created(store: Store, **changes: Any) -> Campaign:
    """Stored as the API stores it, with nothing checked; of no user but `owner`.

    In another state from the start, no runner takes it up in between.
    """
    owner = changes.pop("owner", None)
    state, reason = changes.pop("state", None), changes.pop("reason", "")
    request = campaign_request(**changes)
    with store.transaction() as session:
        campaign = create_campaign(
            session,
            request,
            model=transformer_of(request.model),
            machine=machine_of(request.machine),
            simulated=request.evaluator == "simulated",
            owner=owner,
        )
        if state is not None:
            change_state(session, campaign_row(session, campaign.id), state, reason=reason)
        return campaign


STRATEGY = Strategy(
    tensor_parallel=2,
    pipeline_parallel=4,
    micro_batch_size=1,
    gradient_accumulation_steps=8,
    zero_stage=1,
    num_nodes=2,
)


EXPECTED = Expectation(
    objective=1.12e6,
    iteration_time_low_s=0.875,
    iteration_time_high_s=1.15,
    fit_probability=0.93,
    node_hours=0.4,
    best_so_far=1e6,
    probability_better=0.8,
)
"""An iteration of 1 s: 12 % above the best."""


def ended(state: TrialState, **changes: Any) -> FinishedTrial:
    """How a trial ended, after a minute on two nodes."""
    now = datetime.now(UTC)
    plain: dict[str, Any] = {"started_at": now, "finished_at": now, "duration_s": 60.0}
    return FinishedTrial(state=state, **plain | {"node_hours": 2 / 60} | changes)


def new_trial(**changes: Any) -> NewTrial:
    """A search trial of an iteration of 1 s that is about to start."""
    plain: dict[str, Any] = {
        "strategy": STRATEGY,
        "purpose": "search",
        "predicted_iteration_time_s": 1.0,
        "predicted_memory_gib": 10.0,
        "expected": EXPECTED,
    }
    return NewTrial(**plain | changes)


def with_trials(store: Store, campaign: Campaign, count: int) -> list[Trial]:
    """So many pending trials of one strategy."""
    with store.transaction() as session:
        return insert_trials(session, campaign_row(session, campaign.id), [new_trial()] * count)
