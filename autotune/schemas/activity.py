"""The current activity of a service: runners, unfinished trials, campaigns."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from autotune.schemas.choices import CampaignState, EvaluatorName
from autotune.schemas.shapes import StrategyShape
from autotune.schemas.wire import TrialPurpose, Wire


class RunnerActivity(Wire):
    """A runner that holds campaigns."""

    host: str
    """Host of its process."""
    pid: int
    """Id of its process."""
    campaigns: list[int]
    """Ids of the campaigns that it holds."""


class TrialActivity(Wire):
    """A trial that has not ended."""

    campaign_id: int
    """Id of its campaign."""
    number: int
    """Its number there."""
    purpose: TrialPurpose
    """Why it was started."""
    evaluator: EvaluatorName
    """Evaluator that runs it."""
    strategy: StrategyShape
    """Strategy that it measures."""
    phase: Literal["created", "waiting", "running"]
    """`created` until it runs or is queued."""
    reason: str = ""
    """Why it waits, if known; for a running trial, why its end may be unknown (the scheduler does
    not answer)."""
    job_id: str | None = None
    """The scheduler's id of its job."""
    host: str | None = None
    """The nodes on which it runs."""
    created_at: datetime
    """When it was created."""
    age_s: float
    """Seconds since then."""


class CampaignActivity(Wire):
    """A campaign that has not ended."""

    id: int
    """Its id."""
    name: str
    """Its name."""
    state: CampaignState
    """Its state."""
    evaluator: EvaluatorName
    """Evaluator that runs its trials."""
    runner: str | None = None
    """`host:pid` of the runner that holds it; null if none does."""
    running: int = 0
    """Running trials."""
    waiting: int = 0
    """Trials that have not started."""
    waits_for: str = ""
    """Why no trial runs, in a sentence; empty while one runs."""


class Activity(Wire):
    """Runners, unfinished trials and active campaigns."""

    runners: list[RunnerActivity]
    """Runners that hold any of these campaigns, by the oldest of theirs."""
    trials: list[TrialActivity]
    """At most 1000 unfinished trials, running ones first, then by campaign."""
    campaigns: list[CampaignActivity]
    """All campaigns that have not ended, by id."""
