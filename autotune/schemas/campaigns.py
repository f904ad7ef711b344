"""Campaigns as they stand, and the events of their changes."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from autotune.schemas.requests import CampaignCreate
from autotune.schemas.shapes import MachineShape, ModelShape
from autotune.schemas.trials import Trial
from autotune.schemas.wire import Wire


class CampaignState(StrEnum):
    """`queued` waits for a runner; `running` and `confirming` are worked on; the rest rest."""

    QUEUED = "queued"
    RUNNING = "running"
    CONFIRMING = "confirming"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class StartedFrom(Wire):
    """So many trials of an earlier campaign, which may have been deleted since."""

    campaign_id: int
    name: str
    trials: int
    deleted: bool = False


class StartWorth(Wire):
    """What a campaign's start from earlier trials was worth.

    Medians, over its `trials` that were timed, of the relative error of the time foreseen before
    the first of them: from general knowledge alone, and with the earlier trials.
    """

    trials: int
    error_without: float
    error_with: float


class FewNodes(Wire):
    """On how few nodes, or with how few of the model's layers, trials run that stand for more; None
    where none do. `reason` says in a sentence why so, `outcome` whether what was projected came
    true, once that is known."""

    nodes: int | None
    layers: int | None = None
    reason: str
    outcome: str = ""


class Campaign(Wire):
    """A campaign as it stands. `reason` says in a sentence why it paused, ended or failed.

    `started_from` is None until its search begins, and empty where it began from nothing; so is
    `screening` until then.
    """

    id: int
    name: str
    state: CampaignState
    reason: str
    simulated: bool
    request: CampaignCreate
    model: ModelShape
    machine: MachineShape
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    trials: int
    pending: int
    waiting: int = Field(0, description="those of `pending` that wait for nodes")
    failures: int
    confirmations: int
    node_hours: float
    best_trial: int | None = Field(
        None, description="number of the first trial of the layout that is recommended so far"
    )
    best_objective: float | None = Field(
        None, description="the recommended layout's figure: the median of its trials"
    )
    fastest_trial: int | None = Field(None, description="number of the fastest single trial")
    fastest_objective: float | None = Field(
        None, description="that trial's figure, which another run may not confirm"
    )
    started_from: list[StartedFrom] | None = None
    start_worth: StartWorth | None = None
    screening: FewNodes | None = None


class CampaignPage(Wire):
    items: list[Campaign]
    next: str | None = Field(None, description="cursor of the next page; None on the last")


class Event(Wire):
    """Sent over SSE; `id` grows by one for each change and survives restarts."""

    id: int
    campaign_id: int
    kind: Literal["campaign", "trial", "recommendation"]
    campaign: Campaign | None = None
    trial: Trial | None = None
