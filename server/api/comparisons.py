"""Campaigns side by side."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from autotune.recommendation.side_by_side import CampaignResult, side_by_side
from autotune.schemas.comparisons import MOST_COMPARED, CampaignComparison
from autotune.words.quantities import plural
from search_spaces.errors import InvalidInput
from server.api.campaign_cache import CampaignCache
from server.api.dependencies import LARGEST_ID, CampaignsOf, problems
from server.auth.permissions import Caller, CallerOf
from server.store import NotFound

router = APIRouter(tags=["campaigns"])

Ids = Annotated[
    str,
    Query(
        pattern=r"^\s*[0-9]{1,19}(\s*,\s*[0-9]{1,19})*\s*$",
        max_length=200,
        description=f"Two to {MOST_COMPARED} ids of campaigns, separated by commas: `2,4`.",
        examples=["1,2"],
    ),
]


@router.get("/comparison", responses=problems(404))
def read(campaigns: CampaignsOf, caller: CallerOf, ids: Ids) -> CampaignComparison:
    """Compare campaigns: their results, and which found the best layout; 404 if one does not
    exist."""
    return comparison_of(campaigns, distinct_ids(ids), caller=caller)


def distinct_ids(text: str) -> list[int]:
    """Return the distinct ids in their order.

    Raises:
        InvalidInput: field `ids`: they are not two to MOST_COMPARED.
    """
    ids = list(dict.fromkeys(int(word) for word in text.split(",")))
    valid = f"two to {MOST_COMPARED} ids of different campaigns, such as 2,4"
    if not 2 <= len(ids) <= MOST_COMPARED:
        raise InvalidInput("ids", text, f"names {plural(len(ids), 'campaign')}", valid=valid)
    return ids


def comparison_of(
    campaigns: CampaignCache,
    ids: list[int],
    *,
    caller: Caller,
) -> CampaignComparison:
    """Return the comparison of campaigns that the caller may see.

    Raises:
        NotFound: there is no campaign of one of the ids.
        InvalidInput: field `ids`: one of them was imported.
    """
    results = []
    for campaign_id in ids:
        event = campaigns.last_event(min(campaign_id, LARGEST_ID))
        campaign = campaigns.campaign(campaign_id, event)
        if not caller.sees(owner=campaign.owner, private=campaign.private):
            raise NotFound("campaign", campaign_id)
        if campaign.is_imported:
            reason = f"campaign {campaign_id} was imported, and nothing was searched"
            raise InvalidInput("ids", campaign_id, reason, valid="campaigns that search")
        source = campaigns.source(campaign_id, event)
        results.append(
            CampaignResult(
                campaign=source.campaign,
                trials=source.trials,
                recommendation=campaigns.recommendation(campaign_id, event),
            )
        )
    return side_by_side(results)
