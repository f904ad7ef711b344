"""The recommendation of a campaign, why it is that, and files that launch it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response
from sqlalchemy.orm import Session

from autotune.recommendation import recommend
from autotune.resolution import machine_of, strategy_of, transformer_of
from autotune.schemas import Campaign, Explanation, Ranked, Recommendation, Trial
from evaluators.artefacts import Launch, artefact_names, artefacts, launch_script
from evaluators.cluster import profile_from_dict
from search_spaces.errors import InvalidInput
from server.api.dependencies import (
    CampaignId,
    ExplanationsOf,
    Rank,
    StandingsOf,
    StoreOf,
    problems,
)
from server.store import NotFound, Store
from server.store.campaigns import get_campaign, profile_of
from server.store.trials import all_trials

router = APIRouter(prefix="/campaigns/{campaign_id}", tags=["recommendation"])
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


@router.get("/recommendation", responses=problems(404))
def read(campaign_id: CampaignId, store: StoreOf, standings: StandingsOf) -> Recommendation:
    """Return the best strategy so far, how it stands in its space, and its runners-up; 404 while no
    trial has succeeded."""
    with store.session() as session:
        campaign = get_campaign(session, campaign_id)
        trials = all_trials(session, campaign_id)
        recommendation = recommendation_of(session, campaign, trials)
    return standings.added_to(recommendation, campaign, trials)


@router.get("/explanation", responses=problems(404))
def explanation(campaign_id: CampaignId, explanations: ExplanationsOf) -> Explanation:
    """Return where time and memory of the best, its runners-up and the baseline go, and what lies
    beyond the space; or why nothing ran, and what to ask instead."""
    return explanations.of(campaign_id)


@router.get(
    "/artefacts/{file}",
    response_class=PlainTextResponse,
    responses=problems(404),
)
def artefact(
    campaign_id: CampaignId, file: str, store: StoreOf, rank: Rank = 1
) -> PlainTextResponse:
    """Return one of the files that launch the strategy of this rank."""
    files = files_of(store, campaign_id, rank=rank)
    if file not in files:
        reason = f"there is no file {file!r}; there are {', '.join(files)}"
        raise NotFound("file", file, reason=reason)
    return PlainTextResponse(files[file], headers=_attachment(file))


@router.get(
    "/artefacts.zip",
    response_class=Response,
    responses={
        200: {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}},
        **problems(404),
    },
)
def archive(campaign_id: CampaignId, store: StoreOf, rank: Rank = 1) -> Response:
    """Return all of them in one archive; the same bytes for the same strategy."""
    files = files_of(store, campaign_id, rank=rank)
    folder = f"campaign-{campaign_id}-rank-{rank}"
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


def recommendation_of(
    session: Session, campaign: Campaign, trials: Sequence[Trial]
) -> Recommendation:
    """Return what follows from all trials of a campaign, with the names of its launch files
    and what the first of them needs.

    Raises:
        NotFound: none of the trials has succeeded.
    """
    recommendation = recommend(campaign, trials)
    if recommendation is None:
        reason = f"campaign {campaign.id} has no recommendation yet: no trial has succeeded"
        raise NotFound("recommendation", campaign.id, reason=reason)
    launch = _launch(session, campaign, recommendation.best)
    names = sorted(artefact_names(launch))
    script = launch_script(launch, names)
    return recommendation.model_copy(update={"artefacts": names, "launch": script})


def files_of(store: Store, campaign_id: int, *, rank: int) -> dict[str, str]:
    """Return the launch files of the strategy of a rank, file name -> text.

    Raises:
        NotFound: there is no recommendation.
        InvalidInput: field `rank`: the recommendation does not go that far.
    """
    with store.session() as session:
        campaign = get_campaign(session, campaign_id)
        recommendation = recommendation_of(session, campaign, all_trials(session, campaign_id))
        best = (recommendation.best, *recommendation.runners_up)
        ranked = {strategy.rank: strategy for strategy in best}
        if rank not in ranked:
            valid = f"1 to {max(ranked)}"
            raise InvalidInput("rank", rank, "the recommendation does not go that far", valid=valid)
        return artefacts(_launch(session, campaign, ranked[rank]))


def _launch(session: Session, campaign: Campaign, ranked: Ranked) -> Launch:
    """Return the launch of a strategy, with the cluster's profile as the campaign keeps it."""
    kept = profile_of(session, campaign.id)
    return Launch(
        transformer=transformer_of(campaign.model),
        machine=machine_of(campaign.machine),
        strategy=strategy_of(ranked.strategy),
        name=campaign.name,
        evaluator=campaign.request.evaluator,
        profile=None if kept is None else profile_from_dict(kept, source="campaign"),
    )


def _attachment(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
