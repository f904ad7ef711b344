"""The page that compares campaigns."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from autotune.schemas.choices import ProgressAxis
from autotune.schemas.comparisons import MOST_COMPARED, CampaignComparison
from search_spaces.errors import InvalidInput
from server.api.campaign_cache import CampaignCache
from server.api.comparisons import Ids, comparison_of, distinct_ids
from server.api.dependencies import CampaignListOf, CampaignsOf, StoreOf
from server.auth.permissions import Caller, CallerOf
from server.dashboard.bundle import bundle_name
from server.dashboard.rendering import render
from server.figures.comparison import ProgressFigure, progress_table
from server.figures.vega import Scheme
from server.store import NotFound
from server.store.campaigns import RESTING
from server.store.events import last_event_id

router = APIRouter(prefix="/compare")


@router.get("")
def page(
    request: Request,
    campaigns: CampaignsOf,
    listed: CampaignListOf,
    store: StoreOf,
    caller: CallerOf,
    ids: Annotated[list[str] | None, Query(max_length=100)] = None,
) -> Response:
    """Return a comparison of the campaigns in `ids`, which is comma-separated or repeated; with
    fewer than two, a page to choose them."""
    words = [word.strip() for part in ids or [] for word in part.split(",") if word.strip()]
    with store.session() as session:
        last_event = last_event_id(session)
    found, refusal = _compared(campaigns, words, caller) if words else (None, "")
    resting = found is None or all(each.state in RESTING for each in found.campaigns)
    choices = listed.page(reader=caller.reader).items
    context: dict[str, Any] = {
        "here": "compare",
        "bundle": bundle_name(),
        "comparison": found,
        "improvements": progress_table(found) if found else None,
        "last_event": None if resting else last_event,
        "refusal": refusal,
        "chosen": set(words),
        "choices": choices,
        "most": MOST_COMPARED,
    }
    status = HTTPStatus.UNPROCESSABLE_ENTITY if refusal else HTTPStatus.OK
    return render(request, "compare.html", context, status=status)


@router.get("/charts/progress.vega.json")
def progress_vega(
    campaigns: CampaignsOf,
    caller: CallerOf,
    ids: Ids,
    by: ProgressAxis = "node_hours",
    scheme: Scheme = "light",
) -> dict[str, Any]:
    comparison = comparison_of(campaigns, distinct_ids(ids), caller=caller)
    return ProgressFigure.of(comparison, by=by).described_chart(scheme=scheme)


def _compared(
    campaigns: CampaignCache,
    words: list[str],
    caller: Caller,
) -> tuple[CampaignComparison | None, str]:
    wrong = [word for word in words if not (word.isascii() and word.isdecimal())]
    if wrong:
        return None, f"{wrong[0]!r} is no number of a campaign."
    if len(set(map(int, words))) == 1:
        return None, ""  # a single campaign: the page offers others to compare
    try:
        ids = distinct_ids(",".join(words))
        return comparison_of(campaigns, ids, caller=caller), ""
    except NotFound as error:
        return None, f"{error.reason[:1].upper()}{error.reason[1:]}."
    except InvalidInput as error:
        return None, f"Choose {error.valid}."
