"""The recommendation of a campaign, its explanation, and the files that launch it."""

from __future__ import annotations

import io
import zipfile
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import PlainTextResponse, Response

from autotune.schemas.choices import TrainerName
from autotune.schemas.explanations import Explanation
from autotune.schemas.recommendations import Recommendation
from evaluators.artefacts import Launch, artefacts, trainer_artefacts
from search_spaces.errors import InvalidInput
from server.api.answers import as_json
from server.api.campaign_cache import CampaignCache, launch_of
from server.api.dependencies import (
    AnswersOf,
    CampaignId,
    CampaignsOf,
    Rank,
    problems,
)
from server.store import NotFound

router = APIRouter(prefix="/campaigns/{campaign_id:positive}", tags=["recommendation"])
FileName = Annotated[
    str,
    Path(description="One of the recommendation's `artefacts`.", examples=["train.sbatch"]),
]
Trainer = Annotated[
    TrainerName | None,
    Query(description="The trainer to launch with, one of the recommendation's `trainers`."),
]
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


@router.get("/recommendation", response_model=Recommendation, responses=problems(404))
def read(
    request: Request,
    campaign_id: CampaignId,
    campaigns: CampaignsOf,
    answers: AnswersOf,
) -> Response:
    """Return the best strategy so far, its standing in the space, and its runners-up; 404 while no
    trial has succeeded."""
    return answers.of(
        request,
        campaign_id,
        lambda event: as_json(campaigns.existing_recommendation(campaign_id, event)),
    )


@router.get("/explanation", response_model=Explanation, responses=problems(404))
def explanation(
    request: Request, campaign_id: CampaignId, campaigns: CampaignsOf, answers: AnswersOf
) -> Response:
    """Return the parts of time and memory of the best, its runners-up and the baseline, and what
    lies beyond the space; or why nothing ran, and what to request instead."""
    return answers.of(
        request, campaign_id, lambda event: as_json(campaigns.explanation(campaign_id, event))
    )


@router.get(
    "/artefacts/{file}",
    response_class=PlainTextResponse,
    response_description="The file.",
    responses=problems(404),
)
def artefact(
    campaign_id: CampaignId,
    file: FileName,
    campaigns: CampaignsOf,
    rank: Rank = 1,
) -> PlainTextResponse:
    """Return one of the files that launch the strategy with this rank."""
    files = artefacts(launch_at(campaigns, campaign_id, rank=rank))
    if file not in files:
        reason = f"there is no file {file!r}; there are {', '.join(files)}"
        raise NotFound("file", file, reason=reason)
    return PlainTextResponse(files[file], headers=_attachment(file))


@router.get(
    "/artefacts.zip",
    response_class=Response,
    response_description="An archive with one folder.",
    responses={
        200: {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}},
        **problems(404),
    },
)
def archive(
    campaign_id: CampaignId,
    campaigns: CampaignsOf,
    rank: Rank = 1,
    trainer: Trainer = None,
) -> Response:
    """Return all files that launch the strategy, with another trainer if requested, in one
    reproducible archive."""
    launch = launch_at(campaigns, campaign_id, rank=rank)
    files = trainer_artefacts(launch, trainer) if trainer else artefacts(launch)
    folder = f"campaign-{campaign_id}-rank-{rank}" + (f"-{trainer}" if trainer else "")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for name, text in files.items():
            member = zipfile.ZipInfo(f"{folder}/{name}", ZIP_EPOCH)
            mode = 0o755 if name.endswith((".sh", ".sbatch")) else 0o644
            member.external_attr = (0o100000 | mode) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(member, text)
    headers = _attachment(f"{folder}.zip")
    return Response(buffer.getvalue(), media_type="application/zip", headers=headers)


def launch_at(campaigns: CampaignCache, campaign_id: int, *, rank: int) -> Launch:
    """Return the launch of the strategy with a rank.

    Raises:
        NotFound: there is no recommendation.
        InvalidInput: field `rank`: the recommendation does not go that far.
    """
    event = campaigns.last_event(campaign_id)
    recommendation = campaigns.existing_recommendation(campaign_id, event)
    ranked = {each.rank: each for each in (recommendation.best, *recommendation.runners_up)}
    if rank not in ranked:
        valid = f"1 to {max(ranked)}"
        raise InvalidInput("rank", rank, "the recommendation does not go that far", valid=valid)
    knobs = {1: recommendation.knobs, 2: recommendation.runner_up_knobs}.get(rank)
    return launch_of(campaigns.source(campaign_id, event), ranked[rank], knobs=knobs)


def _attachment(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
