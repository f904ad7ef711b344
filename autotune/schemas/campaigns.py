"""Campaigns as they stand, and the events of their changes."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from autotune.schemas.choices import CampaignState
from autotune.schemas.requests import CampaignCreate
from autotune.schemas.shapes import MachineShape, ModelShape, StrategyShape
from autotune.schemas.trials import Trial
from autotune.schemas.wire import Wire

CampaignOutcome = Literal[
    "queued",
    "running",
    "confirming",
    "paused",
    "found",
    "measured",
    "nothing ran",
    "cancelled",
    "failed",
]
"""What a campaign has come to: its state, and of one that is done whether it found a layout; of a
scaling study whether it measured one."""


class StartedFrom(Wire):
    """Trials of an earlier campaign that a later one started from."""

    campaign_id: int
    """The earlier campaign."""
    name: str
    """Its name."""
    trials: int
    """How many of its trials were taken."""
    deleted: bool = False
    """Whether it has been deleted since."""


class StartWorth(Wire):
    """What a campaign's start from earlier trials was worth.

    Errors are medians of the relative error of the time foreseen before the first trial.
    """

    trials: int
    """Trials that were timed, of which the medians are."""
    error_without: float
    """Error from general knowledge alone, as a share."""
    error_with: float
    """Error with the earlier trials, as a share."""


class FewNodes(Wire):
    """On how few nodes, or with how few of the model's layers, trials run that stand for more."""

    nodes: int | None
    """Nodes that such trials run on; null where all run in full."""
    layers: int | None = None
    """Layers that such trials run with; null where they have all."""
    reason: str
    """Why so, in a sentence."""
    outcome: str = ""
    """Whether what was projected came true, in a sentence; empty until that is known."""


class Campaign(Wire):
    """A campaign as it stands."""

    id: int
    """Unique in the service."""
    name: str
    """What people call it; may be empty."""
    state: CampaignState
    """How it stands."""
    reason: str
    """Why it paused, ended or failed, in a sentence; empty otherwise."""
    simulated: bool
    """Whether its figures come from the cost model and no machine."""
    owner: str | None = None
    """Name of the user whose it is; null where the service has no users."""
    private: bool = False
    """Whether its owner and admins alone see it."""
    request: CampaignCreate
    """What was asked, with the defaults that were taken."""
    model: ModelShape
    """The model in full."""
    machine: MachineShape
    """The machine in full."""
    created_at: datetime
    """When it was asked for."""
    started_at: datetime | None
    """When its search began; null until then."""
    finished_at: datetime | None
    """When it ended; null until then."""
    trials: int
    """Trials of the search so far, the baseline among them."""
    pending: int
    """Trials that have not ended."""
    waiting: int = 0
    """Those of `pending` that wait for nodes."""
    failures: int
    """Trials that failed."""
    confirmations: int
    """Trials that measured one of the best once more."""
    node_hours: float
    """Node-hours that all trials took."""
    best_trial: int | None = None
    """Number of the first trial of the layout that is recommended so far; null while there is
    none."""
    best_objective: float | None = None
    """The recommended layout's objective: the median of its trials, or projected from them where
    they ran on fewer nodes or with fewer layers; null while there is none."""
    best_strategy: StrategyShape | None = None
    """The recommended layout; null while there is none."""
    best_mfu: float | None = None
    """Its model FLOPs over the machine's 16-bit peak; null where that is not known."""
    best_projected_from_nodes: int | None = None
    """Nodes that its figures are projected from; null where they are its own."""
    best_projected_from_layers: int | None = None
    """Layers that its figures are projected from; null where they are of all."""
    fastest_trial: int | None = None
    """Number of the fastest single trial; null while there is none."""
    fastest_objective: float | None = None
    """That trial's objective, which another run may not confirm; null while there is none."""
    started_from: list[StartedFrom] | None = None
    """Earlier trials that it started from; null until its search begins, empty where it began from
    nothing."""
    start_worth: StartWorth | None = None
    """What that start was worth; null while it is not known."""
    screening: FewNodes | None = None
    """On how few nodes or layers its trials run; null until its search begins."""


class ListedCampaign(Campaign):
    """A campaign with what lists show of it."""

    outcome: CampaignOutcome
    """Its state; of one that is done whether it found a layout, or timed one for a study."""
    best_so_far: list[float]
    """Best objective of any trial after each trial, from the first that gave one on; of many
    trials some, at equal distances."""


class CampaignPage(Wire):
    """A page of campaigns."""

    items: list[ListedCampaign]
    """Campaigns of this page, in the order that was asked for."""
    next: str | None = None
    """Cursor of the next page; null on the last."""


class Event(Wire):
    """A change, sent over SSE, with the campaign or trial as it stands when it is sent."""

    id: int
    """Grows by one for each change, and survives restarts."""
    campaign_id: int
    """Campaign that has changed."""
    kind: Literal["campaign", "trial", "recommendation"]
    """What has changed."""
    campaign: Campaign | None = None
    """The campaign; null where a trial has changed."""
    trial: Trial | None = None
    """The trial; null where the campaign has changed."""
