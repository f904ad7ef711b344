"""Follow a campaign of the service until it ends or pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.schemas.choices import CampaignState, TrialState
from server.cli.commands.recommendations import recommendation_of, without_result
from server.cli.failures import Failed
from server.cli.options import CampaignId, ServiceOptions
from server.cli.output import Json, document, note, out

if TYPE_CHECKING:
    from autotune.client.campaign import CampaignHandle
    from autotune.schemas.campaigns import Campaign
    from autotune.schemas.scaling import ScalingStudy


def watch(campaign: CampaignId, service: ServiceOptions, json: Json = False) -> None:
    """Follow a campaign until it ends or pauses, then print the recommendation.

    Ctrl-C stops watching, not the campaign. Exit code 1 if there is no result.
    """
    with service.client() as client:
        follow(client.campaign(campaign), json=json)


def follow(handle: CampaignHandle, *, json: bool) -> None:
    """Show progress, then the result; raises Failed if the campaign ended without one."""
    from server.cli.progress import ProgressBoard

    try:
        with ProgressBoard([handle.campaign]) as board:
            board.begin(handle.trials(state=TrialState.PENDING))
            for event in handle.watch():
                board.update(event)
    except KeyboardInterrupt:
        note(
            f"campaign {handle.id} goes on without being watched: "
            f"`autotune watch {handle.id}` watches it again, `autotune cancel {handle.id}` ends it"
        )
        raise
    searched = handle.refresh().campaign.request.study is None
    (_after_search if searched else _after_study)(handle, json=json)


def _after_search(handle: CampaignHandle, *, json: bool) -> None:
    """Print a campaign's recommendation; raises Failed if it ended without one."""
    from server.cli.tables import recommendations as recommendations_table

    campaign, answer = handle.campaign, recommendation_of(handle)
    if json:
        recommendation = answer.recommendation if answer else None
        document({"campaign": campaign, "recommendation": recommendation})
    elif answer:
        out().print(recommendations_table.recommendation(answer.recommendation))
        note(f"next: `autotune best {campaign.id} --out run/` writes the files that run it")
    if campaign.state == CampaignState.FAILED:
        raise Failed(f"campaign {campaign.id} failed: {campaign.reason}")
    if answer is None:
        raise without_result(campaign)
    if campaign.state != CampaignState.DONE:
        _note_state(campaign)


def _after_study(handle: CampaignHandle, *, json: bool) -> None:
    """Print a scaling study's measurements; raises Failed if it ended without any."""
    from server.cli.tables import predictions as predictions_table

    campaign, found = handle.campaign, studied(handle)
    if json:
        document({"campaign": campaign, "scaling": found})
    else:
        for study in found:
            out().print(predictions_table.scaling(study))
        note(f"next: `autotune plot {campaign.id} --kind scaling --out scaling.pdf` draws it")
    if campaign.state == CampaignState.FAILED:
        raise Failed(f"campaign {campaign.id} failed: {campaign.reason}")
    points = [point for study in found for series in study.series for point in series.points]
    if not any(point.measured for point in points):
        raise Failed(f"campaign {campaign.id} ({campaign.state}) has measured nothing")
    if campaign.state != CampaignState.DONE:
        _note_state(campaign)


def _note_state(campaign: Campaign) -> None:
    reason = f": {campaign.reason}" if campaign.reason else ""
    note(f"campaign {campaign.id} is {campaign.state}{reason}")


def studied(handle: CampaignHandle) -> list[ScalingStudy]:
    """Return how each layout of a scaling study scales."""
    study = handle.campaign.request.study
    count = len(study.strategies) if study else 0
    return [handle.scaling(rank=rank) for rank in range(1, count + 1)]
