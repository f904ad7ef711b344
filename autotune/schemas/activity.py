"""What a service works on now: its runners, the trials that run or wait, the campaigns."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from autotune.schemas.choices import CampaignState, EvaluatorName
from autotune.schemas.shapes import StrategyShape
from autotune.schemas.wire import TrialPurpose, Wire


class RunnerActivity(Wire):
    """A runner that works, as it last told of itself."""

    host: str
    """Where its process is."""
    pid: int
    """Of its process."""
    version: str
    """Of autotune."""
    started_at: datetime
    """When it began."""
    silent_s: float
    """Since it last said that it works, by the database's clock."""
    campaigns: list[int] = Field(default_factory=list)
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
    """What runs it."""
    strategy: StrategyShape
    """What it measures."""
    phase: Literal["created", "waiting", "running"]
    """`created` until something runs or queues it."""
    reason: str = ""
    """Why it waits, where that is known; of one that runs, what keeps its end from being known."""
    job_id: str | None = None
    """The scheduler's id of its job."""
    host: str | None = None
    """The nodes on which it runs."""
    created_at: datetime
    """When it was decided on."""
    age_s: float
    """Since then."""


class CampaignActivity(Wire):
    """A campaign that does not rest for good."""

    id: int
    """Its id."""
    name: str
    """Its name."""
    state: CampaignState
    """How it stands."""
    evaluator: EvaluatorName
    """What runs its trials."""
    runner: str | None = None
    """`host:pid` of the runner that holds it; null where none does."""
    running: int = 0
    """Trials that run."""
    waiting: int = 0
    """Trials that have not started."""
    waits_for: str = ""
    """Why nothing of it runs, in a sentence; empty while something does."""


class Activity(Wire):
    """What runs where, and who waits for what."""

    runners: list[RunnerActivity]
    """The longest at work first."""
    trials: list[TrialActivity]
    """The first 1000 that have not ended: those that run first, then by campaign."""
    campaigns: list[CampaignActivity]
    """All that do not rest for good, by id."""
