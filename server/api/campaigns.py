"""Campaigns: created, listed, controlled and deleted."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Query, Request, Response
from pydantic import BaseModel
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from autotune.schemas.campaigns import Campaign, CampaignPage
from autotune.schemas.choices import CampaignState
from autotune.schemas.plans import CampaignPlan
from autotune.schemas.requests import BudgetExtension, CampaignChange, CampaignCreate
from evaluators.cluster import profile_as_dict
from server.api.admission import admit
from server.api.answers import as_json
from server.api.dependencies import (
    AnswersOf,
    CampaignId,
    CampaignListOf,
    CampaignsOf,
    CampaignSort,
    Cursor,
    OwnerFilter,
    PlansOf,
    Search,
    SettingsOf,
    StoreOf,
    problems,
)
from server.auth.permissions import SERVICE, Caller, CallerOf
from server.settings import Settings
from server.store import Store
from server.store.campaign_list import NEWEST_FIRST
from server.store.campaigns import (
    IdempotencyKey,
    cancel_campaign,
    change_campaign,
    create_campaign,
    delete_campaign,
    extend_campaign,
    find_replay,
    pause_campaign,
    resume_campaign,
)

router = APIRouter(prefix="/campaigns", tags=["campaigns"])

EXAMPLES: dict[str, Any] = {
    "simulated": {
        "summary": "175B on 16 Frontier nodes, simulated",
        "value": {
            "name": "175B on Frontier",
            "model": "gpt-175b",
            "machine": "frontier",
            "nodes": 16,
            "pool_nodes": 64,
            "evaluator": "simulated",
            "space": {"preset": "table-v"},
            "budget": {"max_trials": 40},
        },
    },
    "local": {
        "summary": "a tiny GPT by real training on this machine",
        "value": {
            "model": "tiny",
            "machine": "local",
            "evaluator": "local",
            "space": {"preset": "tiny-local"},
            "budget": {"max_trials": 12},
        },
    },
}
CHANGES: dict[str, Any] = {"another name": {"value": {"name": "175B, first attempt"}}}
MORE: dict[str, Any] = {"more trials": {"value": {"max_trials": 60}}}
KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="Any word; a repeated request with the same key and body creates nothing new.",
    ),
]
CREATED: dict[str, Any] = {
    "model": Campaign,
    "headers": {"Location": {"schema": {"type": "string"}, "description": "Its address."}},
}


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    responses={
        200: {"model": CampaignPlan, "description": "With `dry_run`: what the campaign would do."},
        201: CREATED,
        **problems(403, 409, 507),
    },
)
def create(
    request: Annotated[CampaignCreate, Body(openapi_examples=EXAMPLES)],
    response: Response,
    store: StoreOf,
    settings: SettingsOf,
    plans: PlansOf,
    caller: CallerOf,
    dry: Annotated[
        bool, Query(alias="dry_run", description="Only report what it would do.")
    ] = False,
    key: KeyHeader = None,
) -> Campaign | CampaignPlan:
    """Create a campaign, or report what it would do."""
    if dry:
        response.status_code = HTTPStatus.OK
        admitted = admit(request, settings, as_admin=caller.is_admin)
        return plans.of(admitted.request, owner=caller.name, as_admin=caller.is_admin)
    idempotency = idempotency_of(key, request, caller)
    campaign = create_once(store, request, settings, caller=caller, idempotency=idempotency)
    response.headers["Location"] = f"/api/v1/campaigns/{campaign.id}"
    return campaign


def idempotency_of(key: str | None, body: BaseModel, caller: Caller) -> IdempotencyKey | None:
    """Return the key with the SHA-256 of the body, independent of its formatting; None without a
    key."""
    if not key:
        return None
    return IdempotencyKey(key=key, owner=caller.name, digest=digest_of(body))


def digest_of(body: BaseModel) -> str:
    canonical = json.dumps(body.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def create_once(
    store: Store,
    request: CampaignCreate,
    settings: Settings,
    *,
    caller: Caller = SERVICE,
    idempotency: IdempotencyKey | None = None,
) -> Campaign:
    """Create a campaign, or return the one that an earlier request with the same key created.

    Raises:
        InvalidInputs: the request cannot be fulfilled.
        Conflict: the key belongs to another request.
    """
    replayed = _replay(store, idempotency)
    if replayed is not None:
        return replayed
    admitted = admit(request, settings, as_admin=caller.is_admin)
    space, profile = admitted.space, admitted.profile
    simulated = request.evaluator == "simulated"
    return insert_once(
        store,
        idempotency,
        lambda session: create_campaign(
            session,
            admitted.request,
            model=space.transformer,
            machine=space.machine,
            simulated=simulated,
            owner=caller.name,
            profile=profile_as_dict(profile) if profile else None,
            idempotency=idempotency,
        ),
    )


def insert_once(
    store: Store, idempotency: IdempotencyKey | None, insert: Callable[[Session], Campaign]
) -> Campaign:
    """Insert a campaign; return the one of a concurrent request with the same key."""
    try:
        with store.transaction() as session:
            return insert(session)
    except IntegrityError:
        replayed = _replay(store, idempotency)
        if replayed is None:
            raise
        return replayed


def _replay(store: Store, idempotency: IdempotencyKey | None) -> Campaign | None:
    if idempotency is None:
        return None
    with store.session() as session:
        return find_replay(session, idempotency)


@router.get("", responses=problems())
def listing(
    campaigns: CampaignListOf,
    caller: CallerOf,
    state: Annotated[
        CampaignState | None, Query(description="Only campaigns in this state.")
    ] = None,
    owner: OwnerFilter = "",
    search: Search = "",
    sort: CampaignSort = NEWEST_FIRST,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=500, description="Maximum campaigns of a page.")] = 50,
) -> CampaignPage:
    """List campaigns, newest first by default."""
    return campaigns.page(
        state=state,
        owner=owner or None,
        search=search,
        sort=sort,
        cursor=cursor,
        limit=limit,
        reader=caller.reader,
    )


@router.get("/{campaign_id:positive}", response_model=Campaign, responses=problems(404))
def read(
    request: Request, campaign_id: CampaignId, campaigns: CampaignsOf, answers: AnswersOf
) -> Response:
    """Return a campaign."""
    return answers.of(
        request, campaign_id, lambda event: as_json(campaigns.campaign(campaign_id, event))
    )


@router.patch("/{campaign_id:positive}", responses=problems(403, 404, 507))
def change(
    campaign_id: CampaignId,
    request: Annotated[CampaignChange, Body(openapi_examples=CHANGES)],
    store: StoreOf,
) -> Campaign:
    """Rename a campaign, or make it private or public."""
    with store.transaction() as session:
        return change_campaign(session, campaign_id, request)


@router.post("/{campaign_id:positive}/pause", responses=problems(403, 404, 409, 507))
def pause(campaign_id: CampaignId, store: StoreOf) -> Campaign:
    """Pause a campaign: running trials end, and no new ones start."""
    return _steer(store, campaign_id, pause_campaign)


@router.post("/{campaign_id:positive}/resume", responses=problems(403, 404, 409, 507))
def resume(campaign_id: CampaignId, store: StoreOf) -> Campaign:
    """Resume a paused or failed campaign."""
    return _steer(store, campaign_id, resume_campaign)


@router.post("/{campaign_id:positive}/cancel", responses=problems(403, 404, 409, 507))
def cancel(campaign_id: CampaignId, store: StoreOf) -> Campaign:
    """Cancel a campaign for good, with its running trials."""
    return _steer(store, campaign_id, cancel_campaign)


@router.post("/{campaign_id:positive}/extend", responses=problems(403, 404, 409, 507))
def extend(
    campaign_id: CampaignId,
    extension: Annotated[BudgetExtension, Body(openapi_examples=MORE)],
    store: StoreOf,
) -> Campaign:
    """Set new totals of the budget; a finished campaign continues."""
    with store.transaction() as session:
        return extend_campaign(session, campaign_id, extension)


@router.delete(
    "/{campaign_id:positive}",
    status_code=HTTPStatus.NO_CONTENT,
    response_description="It is deleted.",
    responses=problems(403, 404, 409, 507),
)
def delete(campaign_id: CampaignId, store: StoreOf, settings: SettingsOf) -> None:
    """Delete an ended or paused campaign, with its trials, their logs and results."""
    with store.transaction() as session:
        tokens = delete_campaign(session, campaign_id)
    for token in tokens:
        shutil.rmtree(settings.trial_dir(token), ignore_errors=True)


def _steer(store: Store, campaign_id: int, command: Callable[[Session, int], Campaign]) -> Campaign:
    with store.transaction() as session:
        return command(session, campaign_id)
