"""What every endpoint is given: the store, the settings, ids that a database can hold."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request
from starlette.convertors import Convertor, register_url_convertor

from autotune.schemas import Problem
from server.api.answers import Answers
from server.api.campaign_cache import CampaignCache
from server.api.event_feed import EventFeed
from server.api.planning import Plans
from server.auth.authentication import Authenticator
from server.auth.permissions import demand_rights
from server.settings import Settings
from server.store import Store
from server.store.campaign_list import SORTS, CampaignList

# What follows from the request alone is `async`: a thread for it would cost more than it.

LARGEST_ID = 2**63 - 1
LARGEST_NUMBER = 2**31 - 1


class Positive(Convertor[int]):
    """Matches a positive integer in its one canonical spelling.

    Python and Pydantic also read `+2`, `2.0`, ` 2` and `02` as 2. No route matches these, so every
    part of the service that looks at a path sees the same number.
    """

    regex = "[1-9][0-9]{0,18}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("positive", Positive())


async def _store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


async def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


async def _campaigns(request: Request) -> CampaignCache:
    campaigns: CampaignCache = request.app.state.campaigns
    return campaigns


async def _answers(request: Request) -> Answers:
    answers: Answers = request.app.state.answers
    return answers


async def _plans(request: Request) -> Plans:
    plans: Plans = request.app.state.plans
    return plans


async def _campaign_list(request: Request) -> CampaignList:
    campaigns: CampaignList = request.app.state.campaign_list
    return campaigns


async def campaign_within_rights(
    request: Request,
    campaign_id: Annotated[
        int, Path(ge=1, le=LARGEST_ID, description="Id of the campaign.", examples=[1])
    ],
) -> int:
    """Return the campaign that a path names, once the caller's rights to it are checked."""
    await demand_rights(request, campaign_id)
    return campaign_id


async def _authenticator(request: Request) -> Authenticator:
    authenticator: Authenticator = request.app.state.authenticator
    return authenticator


async def _feed(request: Request) -> EventFeed:
    feed: EventFeed = request.app.state.feed
    return feed


StoreOf = Annotated[Store, Depends(_store)]
SettingsOf = Annotated[Settings, Depends(_settings)]
CampaignsOf = Annotated[CampaignCache, Depends(_campaigns)]
AnswersOf = Annotated[Answers, Depends(_answers)]
PlansOf = Annotated[Plans, Depends(_plans)]
CampaignListOf = Annotated[CampaignList, Depends(_campaign_list)]
FeedOf = Annotated[EventFeed, Depends(_feed)]
AuthenticatorOf = Annotated[Authenticator, Depends(_authenticator)]
CampaignId = Annotated[int, Depends(campaign_within_rights)]
"""The only way for an endpoint to a campaign that its path names (`{campaign_id:positive}`)."""
TrialNumber = Annotated[
    int,
    Path(
        ge=1,
        le=LARGEST_NUMBER,
        description="Number of the trial within its campaign.",
        examples=[1],
    ),
]
Cursor = Annotated[
    str | None,
    Query(max_length=200, description="`next` of the page before; none for the first page."),
]
Search = Annotated[
    str,
    Query(
        max_length=200,
        description="Words that each stand somewhere in what a list shows of a campaign; those in "
        "quotation marks stand there side by side.",
        examples=['frontier "tp 8"'],
    ),
]
OwnerFilter = Annotated[
    str,
    Query(
        pattern=r"^[A-Za-z0-9._@+-]*$",
        max_length=64,
        description="Only campaigns of the user of this name.",
        examples=["alice"],
    ),
]
CampaignSort = Annotated[
    str,
    Query(
        max_length=50,
        description=f"One of {', '.join(SORTS)}; falling with a leading -.",
        examples=["-best_mfu"],
    ),
]
Rank = Annotated[int, Query(ge=1, le=100, description="Rank of the strategy; 1 is the best.")]

Responses = dict[int | str, dict[str, Any]]


def problems(*statuses: int) -> Responses:
    """Return the OpenAPI description of these refusals, and of those that every endpoint shares."""
    meanings = {
        401: "The service's token is needed.",
        403: "Refused: who asks may not do that, or another site's page sent it.",
        404: "There is no such thing.",
        413: "The request is too large.",
        409: "Its state does not allow it, or a limit of its owner's.",
        421: "The service does not go by this name.",
        422: "A field is refused; `errors` names each with its value, reason and what is valid.",
        429: "As many requests or streams of one user are under way as may be; `Retry-After` says "
        "when to try again.",
        503: "The database does not answer now, or too many streams of events are open; "
        "`Retry-After` says when to try again.",
        507: "The disk is full; nothing was stored.",
    }
    schema = {"$ref": f"#/components/schemas/{Problem.__name__}"}
    content = {"application/problem+json": {"schema": schema}}
    shown = sorted({*statuses, 421, 422, 429, 503})
    return {status: {"description": meanings[status], "content": content} for status in shown}
