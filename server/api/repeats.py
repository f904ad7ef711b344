"""Campaigns that repeat others with another search."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Response

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import SearchMethod
from autotune.schemas.requests import CampaignCreate, CampaignRepeat
from search_spaces.errors import InvalidInput
from server.api.campaigns import CREATED, KeyHeader, create_once, idempotency_of, located
from server.api.dependencies import LARGEST_ID, SettingsOf, StoreOf, problems
from server.auth.permissions import Caller, CallerOf, demand_seen
from server.store import NotFound, Store
from server.store.campaigns import get_campaign

router = APIRouter(prefix="/repeats", tags=["campaigns"])

EXAMPLES: dict[str, Any] = {"DeepHyper": {"value": {"like": 1, "search": "deephyper"}}}
LONGEST_NAME = 150
"""Characters of the name that are kept, with room for the search."""


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    responses={201: CREATED, **problems(403, 409, 507)},
)
def create(
    repeat: Annotated[CampaignRepeat, Body(openapi_examples=EXAMPLES)],
    response: Response,
    store: StoreOf,
    settings: SettingsOf,
    caller: CallerOf,
    key: KeyHeader = None,
) -> Campaign:
    """Create a campaign that repeats another with another search."""
    request = _request(repeat, store, caller)
    idempotency = idempotency_of(key, repeat, caller)
    campaign = create_once(store, request, settings, caller=caller, idempotency=idempotency)
    return located(campaign, response)


def _request(repeat: CampaignRepeat, store: Store, caller: Caller) -> CampaignCreate:
    """Return the request of the repeated campaign.

    Raises:
        InvalidInput: `like` does not exist for the caller or is a study, or `search` is its own.
    """
    try:
        if repeat.like > LARGEST_ID:
            raise NotFound("campaign", repeat.like)
        with store.session() as session:
            demand_seen(session, caller, repeat.like)
            like = get_campaign(session, repeat.like)
    except NotFound as error:
        valid = "the id of a campaign that you can see"
        raise InvalidInput("like", repeat.like, "there is no such campaign", valid=valid) from error
    asked = like.request
    if asked.study is not None:
        reason = "it is a scaling study, which searches nothing"
        raise InvalidInput("like", repeat.like, reason, valid="a campaign that searches")
    if (asked.search, asked.surrogate) == (repeat.search, repeat.surrogate):
        reason = f"campaign {like.id} searched in this way"
        raise InvalidInput("search", repeat.search, reason, valid="another search")
    return asked.model_copy(
        update={
            "name": _name(like.name, before=asked.search, now=repeat.search),
            "private": like.private,
            "budget": asked.budget.model_copy(update={"deadline": None}),
            "search": repeat.search,
            "surrogate": repeat.surrogate,
            "fresh": asked.fresh or repeat.search == "calibrated",
        }
    )


def _name(name: str, *, before: SearchMethod, now: SearchMethod) -> str:
    return f"{name.removesuffix(f' ({before})')[:LONGEST_NAME]} ({now})"
