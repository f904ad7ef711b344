"""Imports of earlier runs, from which later campaigns start."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body

from autotune.diagnosis.observed import unusable
from autotune.schemas.campaigns import Campaign
from autotune.schemas.imports import ImportRequest
from autotune.schemas.requests import NO_BASELINE, Budget, CampaignCreate
from autotune.schemas.resolution import subject_of
from evaluators.cluster import profile_as_dict
from search_spaces.errors import InvalidInput, InvalidInputs
from server.api.campaigns import digest_of, insert_once
from server.api.dependencies import SettingsOf, StoreOf, problems
from server.auth.permissions import CallerOf
from server.programs import chosen_profile
from server.store.campaigns import IdempotencyKey
from server.store.imports import import_runs

router = APIRouter(tags=["campaigns"])
LAYOUT = {"tensor_parallel": 8, "pipeline_parallel": 1, "micro_batch_size": 4, "zero_stage": 1}
RUN: dict[str, Any] = {
    "strategy": LAYOUT | {"gradient_accumulation_steps": 8, "num_nodes": 4},
    "iteration_time_s": 16.2,
    "source": "run.log",
    "finished_at": "2026-05-01T12:00:00Z",
}
EXAMPLES: dict[str, Any] = {
    "one run": {"value": {"model": "gpt-22b", "machine": "dgx-a100", "runs": [RUN]}}
}


@router.post("/imports", status_code=HTTPStatus.CREATED, responses=problems(403, 409, 507))
def create(
    request: Annotated[ImportRequest, Body(openapi_examples=EXAMPLES)],
    store: StoreOf,
    settings: SettingsOf,
    caller: CallerOf,
) -> Campaign:
    """Import earlier runs of one model on one machine with one trainer: later campaigns there start
    from them. All are stored, as a campaign that searched nothing, or none; the same runs again are
    the same campaign."""
    transformer, machine = subject_of(request.model, request.machine)
    found = [unusable(run, transformer, machine) for run in request.runs]
    if any(found):
        raise InvalidInputs(
            InvalidInput(f"runs.{place}.{each.field}", each.value, each.reason, valid=each.valid)
            for place, each in enumerate(found)
            if each is not None
        )
    question = CampaignCreate(
        **{name: getattr(request, name) for name in ("name", "model", "machine", "private")},
        adapter=request.adapter,
        evaluator="local",
        baseline=NO_BASELINE,
        nodes=max(run.strategy.num_nodes for run in request.runs),
        budget=Budget(max_trials=len(request.runs)),
    )
    profile = chosen_profile(question, settings, as_admin=caller.is_admin)
    digest = digest_of(request.model_copy(update={"name": "", "private": False}))
    once = IdempotencyKey(key=f"import {digest}", digest=digest, owner=caller.name)
    return insert_once(
        store,
        once,
        lambda session: import_runs(
            session,
            question,
            request.runs,
            model=transformer,
            machine=machine,
            profile=profile_as_dict(profile) if profile else None,
            owner=caller.name,
            idempotency=once,
        ),
    )
