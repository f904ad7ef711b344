"""Campaigns and their events."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from autotune.schemas.choices import CampaignState
from autotune.schemas.requests import CampaignCreate
from autotune.schemas.trials import Trial
from autotune.schemas.wire import Wire
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

CampaignOutcome = CampaignState | Literal["nothing ran"]
"""State of a campaign; `nothing ran` if it is done without a layout."""


class StartedFrom(Wire):
    """Earlier trials that a campaign started from, by campaign."""

    campaign_id: int
    """The earlier campaign."""
    name: str
    """Its name."""
    trials: int
    """How many of its trials were taken."""
    deleted: bool = False
    """Whether it has been deleted since."""


class StartWorth(Wire):
    """Benefit of the earlier trials that a campaign uses.

    Errors are medians of the relative error of iteration times predicted before the first trial.
    """

    trials: int
    """Number of timed trials in the medians."""
    error_without: float
    """Error without the earlier trials, as a fraction."""
    error_with: float
    """Error with the earlier trials, as a fraction."""


class FewNodes(Wire):
    """Number of nodes or layers of trials that stand for more nodes or layers."""

    nodes: int | None
    """Nodes of such trials; null if all trials run in full."""
    layers: int | None = None
    """Layers of such trials; null if they have all layers."""
    reason: str
    """Reason for the choice, in a sentence."""
    outcome: str = ""
    """Whether the projections agreed with measurements, in a sentence; empty until known."""


class Campaign(Wire):
    """A campaign."""

    id: int
    """Unique in the service."""
    name: str
    """Display name; may be empty."""
    state: CampaignState
    """Its state."""
    reason: str
    """Why it waits, paused, ended or failed: a few words, then details after a colon. May be
    empty."""
    simulated: bool
    """Whether its results are simulated by the cost model."""
    owner: str | None = None
    """Name of its owner; null if the service has no users."""
    private: bool = False
    """Whether only its owner and admins see it."""
    request: CampaignCreate
    """The request, with defaults filled in."""
    model: Transformer
    """The model in full."""
    machine: Machine
    """The machine in full."""
    created_at: datetime
    """When it was created."""
    started_at: datetime | None
    """When its search began; null until then."""
    finished_at: datetime | None
    """When it ended; null until then."""
    trials: int
    """Trials of the search so far, including the baseline."""
    pending: int
    """Trials that have not ended."""
    waiting: int = 0
    """Pending trials that wait for nodes."""
    waits_for: str = ""
    """Why it waits: its own reason, or its trials' most common one; empty while a trial runs."""
    failures: int
    """Trials that failed."""
    confirmations: int
    """Confirmations: trials that measured one of the best again."""
    knob_starts: int = 0
    """Starts of the best layout with and without knobs."""
    node_hours: float
    """Node-hours of all trials."""
    best_trial: int | None = None
    """Number of the first trial of the recommended layout; null while there is none."""
    best_objective: float | None = None
    """Objective of the recommended layout: the median of its trials, or projected from trials on
    fewer nodes or with fewer layers; null while there is none."""
    best_strategy: Strategy | None = None
    """The recommended layout; null while there is none."""
    best_mfu: float | None = None
    """Its MFU: model FLOPs over the machine's 16-bit peak; null if the peak is unknown."""
    best_projected_from_nodes: int | None = None
    """Nodes of the trials from which it is projected; null if measured on its own nodes."""
    best_projected_from_layers: int | None = None
    """Layers of the trials from which it is projected; null if measured with all layers."""
    fastest_trial: int | None = None
    """Number of the fastest single trial; null while there is none."""
    fastest_objective: float | None = None
    """Objective of that trial; a repetition may differ. Null while there is none."""
    started_from: list[StartedFrom] | None = None
    """Earlier trials that it uses; null until its search begins, empty if none."""
    start_worth: StartWorth | None = None
    """Benefit of the earlier trials; null while unknown."""
    screening: FewNodes | None = None
    """Number of nodes or layers of stand-in trials; null until its search begins."""
    surrogate_from: int | None = None
    """Number of the first trial that the surrogate of the search `deephyper` chose; null before it,
    and for any other search."""

    @property
    def trials_in_all(self) -> int:
        """Trials for any purpose, in any state."""
        return self.trials + self.confirmations + self.knob_starts

    @property
    def is_imported(self) -> bool:
        return self.state is CampaignState.IMPORTED


class ListedCampaign(Campaign):
    """A campaign with its summary for lists."""

    outcome: CampaignOutcome
    """Its state; for a finished campaign whether it found a layout."""
    best_so_far: list[float]
    """Best objective so far after each trial, from the first successful one; thinned at equal
    distances for many trials."""


class CampaignPage(Wire):
    """A page of campaigns."""

    items: list[ListedCampaign]
    """Campaigns of this page, in the requested order."""
    next: str | None = None
    """Cursor of the next page; null on the last."""


class Event(Wire):
    """A change, sent over SSE, with the current campaign or trial."""

    id: int
    """Increases with each change, also across restarts."""
    campaign_id: int
    """Campaign that has changed."""
    kind: Literal["campaign", "trial", "recommendation"]
    """What has changed."""
    campaign: Campaign | None = None
    """The campaign; null if a trial changed."""
    trial: Trial | None = None
    """The trial; null if the campaign changed."""


def outcome_of_campaign(campaign: Campaign) -> CampaignOutcome:
    """Return the outcome of a campaign."""
    found = campaign.best_trial is not None or campaign.fastest_trial is not None
    return outcome_of(campaign.state, found=found)


def outcome_of(state: CampaignState, *, found: bool) -> CampaignOutcome:
    """Return the state, or `nothing ran` if the campaign is done without a layout."""
    return state if found or state is not CampaignState.DONE else "nothing ran"
