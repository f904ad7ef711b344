"""Outcomes of campaigns."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.schemas.campaigns import Campaign, CampaignOutcome
from autotune.schemas.choices import CampaignState

_OUTCOMES: Mapping[CampaignState, CampaignOutcome] = {
    CampaignState.QUEUED: "queued",
    CampaignState.RUNNING: "running",
    CampaignState.CONFIRMING: "confirming",
    CampaignState.PAUSED: "paused",
    CampaignState.DONE: "found",
    CampaignState.CANCELLED: "cancelled",
    CampaignState.FAILED: "failed",
}


def outcome_of_campaign(campaign: Campaign) -> CampaignOutcome:
    """Return the outcome of a campaign; for a scaling study, whether it measured a step."""
    found = campaign.best_trial is not None or campaign.fastest_trial is not None
    outcome = outcome_of(campaign.state, found=found)
    return "measured" if campaign.request.study and outcome == "found" else outcome


def outcome_of(state: CampaignState, *, found: bool) -> CampaignOutcome:
    """Return the state, and for a finished campaign whether it found a layout."""
    return _OUTCOMES[state] if found or state is not CampaignState.DONE else "nothing ran"
