"""The content of a notice: as text for users, and as a document for programs."""

from __future__ import annotations

from typing import Any

from autotune.resolution import strategy_of
from autotune.schemas.choices import CampaignState
from server.store.notices import DueNotice

LONGEST_REASON = 2000
WORDS = {
    CampaignState.DONE: "is done",
    CampaignState.CANCELLED: "was cancelled",
    CampaignState.FAILED: "failed",
    CampaignState.PAUSED: "is paused",
}


class NotDelivered(Exception):
    """The notice was not delivered, or delivery was not confirmed; it may be retried."""


def subject(notice: DueNotice) -> str:
    """Return one line: `campaign 7 (22B on Frontier) is done`."""
    name = " ".join(notice.campaign.name.split())
    return f"campaign {notice.campaign.id} ({name}) {WORDS[notice.state]}"


def text(notice: DueNotice, *, url: str) -> str:
    """Return the outcome of the campaign, and its address."""
    campaign = notice.campaign
    lines = [f"{subject(notice)[0].upper()}{subject(notice)[1:]}."]
    if notice.reason:
        lines.append(f"Reason: {notice.reason[:LONGEST_REASON]}")
    lines.append(f"Trials: {campaign.trials}, node-hours: {campaign.node_hours:.2f}")
    if campaign.best_strategy is not None:
        lines.append(f"Recommended: {strategy_of(campaign.best_strategy).short()}")
    if campaign.simulated:
        lines.append("Its trials are simulated: figures are predictions, not measurements.")
    lines += ["", page(notice, url=url)]
    return "\n".join(lines) + "\n"


def document(notice: DueNotice, *, url: str) -> dict[str, Any]:
    """Return the same as the body of a webhook."""
    campaign = notice.campaign
    best = campaign.best_strategy
    return {
        "type": f"campaign.{notice.state}",
        "timestamp": notice.at.isoformat(),
        "data": {
            "campaign_id": campaign.id,
            "name": campaign.name,
            "owner": campaign.owner,
            "state": notice.state,
            "reason": notice.reason[:LONGEST_REASON],
            "simulated": campaign.simulated,
            "trials": campaign.trials,
            "node_hours": campaign.node_hours,
            "objective": campaign.request.objective,
            "best_trial": campaign.best_trial,
            "best_objective": campaign.best_objective,
            "best_strategy": None if best is None else best.model_dump(mode="json"),
            "url": page(notice, url=url),
        },
    }


def page(notice: DueNotice, *, url: str) -> str:
    """Return the address of the campaign's page."""
    return f"{url.rstrip('/')}/campaigns/{notice.campaign.id}"
