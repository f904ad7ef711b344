"""Dependencies and parameters of the endpoints."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Path, Query, Request
from fastapi.routing import APIRoute
from starlette.convertors import Convertor, register_url_convertor

from autotune.schemas.validation import MOST_UNKNOWN, shortened
from autotune.schemas.wire import Problem
from search_spaces.errors import InvalidInput, InvalidInputs, closest, suggestion
from server.api.answers import Answers
from server.api.campaign_cache import CampaignCache
from server.api.event_feed import EventFeed
from server.api.planning import Plans
from server.auth.authentication import Authenticator
from server.auth.permissions import demand_rights
from server.settings import Settings
from server.store import Store
from server.store.campaign_list import SORTS, CampaignList

# Dependencies that do no I/O are `async`: a thread would cost more than they do.

LARGEST_ID = 2**63 - 1
LARGEST_NUMBER = 2**31 - 1


class Positive(Convertor[int]):
    """Matches a positive integer in its one canonical spelling.

    Python and Pydantic also read `+2`, `2.0`, ` 2` and `02` as 2. No route matches these, so that
    every part of the service reads the same number from a path.
    """

    regex = "[1-9][0-9]{0,18}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("positive", Positive())


async def campaign_within_rights(
    request: Request,
    campaign_id: Annotated[
        int, Path(ge=1, le=LARGEST_ID, description="Id of the campaign.", examples=[1])
    ],
) -> int:
    """Return the id of the campaign in the path, after a check of the caller's rights."""
    await demand_rights(request, campaign_id)
    return campaign_id


def _of_app(name: str) -> Any:
    async def read(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(read)


StoreOf = Annotated[Store, _of_app("store")]
SettingsOf = Annotated[Settings, _of_app("settings")]
CampaignsOf = Annotated[CampaignCache, _of_app("campaigns")]
AnswersOf = Annotated[Answers, _of_app("answers")]
PlansOf = Annotated[Plans, _of_app("plans")]
CampaignListOf = Annotated[CampaignList, _of_app("campaign_list")]
FeedOf = Annotated[EventFeed, _of_app("feed")]
AuthenticatorOf = Annotated[Authenticator, _of_app("authenticator")]
CampaignId = Annotated[int, Depends(campaign_within_rights)]
"""The only way in which endpoints read `{campaign_id:positive}` from their path."""
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
        description="Words that all appear in what a list shows of a campaign; quoted words appear "
        "together.",
        examples=['frontier "tp 8"'],
    ),
]
OwnerFilter = Annotated[
    str,
    Query(
        pattern=r"^[A-Za-z0-9._@+-]*$",
        max_length=64,
        description="Only campaigns of this user.",
        examples=["alice"],
    ),
]
CampaignSort = Annotated[
    str,
    Query(
        max_length=50,
        description=f"One of {', '.join(SORTS)}; with a leading - for descending order.",
        examples=["-best_mfu"],
    ),
]
Rank = Annotated[int, Query(ge=1, le=100, description="Rank of the layout; 1 is the best.")]


async def exact_path(request: Request) -> None:
    """Raise 404 for a path that ends with a line break, which the `$` of a route's pattern
    ignores."""
    in_parameter = any(str(value).endswith("\n") for value in request.path_params.values())
    if request.scope["path"].endswith("\n") and not in_parameter:
        raise HTTPException(HTTPStatus.NOT_FOUND)


async def known_filters(request: Request) -> None:
    """Raise InvalidInputs for query parameters that the resource does not have."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return
    known = list(dict.fromkeys(_filters(route.dependant)))
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in known]
    problems = []
    for name in unknown[:MOST_UNKNOWN]:
        hint = suggestion(closest(name, known, count=1))
        reason = f"this resource has no such filter{hint}"
        valid = ", ".join(known) or "no filter"
        value = request.query_params[name]
        problems.append(InvalidInput(shortened(name), value, reason, valid=valid))
    if problems:
        raise InvalidInputs(problems)


def _filters(dependant: Any) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for other in dependant.dependencies:
        yield from _filters(other)


Responses = dict[int | str, dict[str, Any]]


def problems(*statuses: int) -> Responses:
    """Return the OpenAPI description of error responses, including those of every endpoint."""
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
