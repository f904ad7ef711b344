"""Campaigns side by side."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from autotune.schemas.choices import CampaignState, Objective, SearchMethod, Surrogate
from autotune.schemas.recommendations import Ranked
from autotune.schemas.wire import Positive, Wire

MOST_COMPARED = 8
"""More lines than this nobody tells apart in one chart."""


class ProgressStep(Wire):
    """The best rate so far, from here on."""

    trial: Positive
    """Number of the trial within its campaign."""
    node_hours: Annotated[float, Field(ge=0)]
    """Node-hours spent on trials until then."""
    objective: float
    """The best objective, from here on."""


class ComparedCampaign(Wire):
    """One of the campaigns, and what came of it."""

    campaign_id: int
    """The campaign."""
    name: str
    """What people call it; may be empty."""
    state: CampaignState
    """How it stands."""
    simulated: bool
    """Whether its figures come from the cost model and no machine."""
    objective: Objective
    """What was to be as high as possible."""
    search: SearchMethod
    """What chose its trials."""
    surrogate: Surrogate | None = None
    """Of the search `deephyper`; null with any other."""
    trials: int
    """Trials of the search, the baseline among them."""
    failures: int
    """Trials that failed."""
    node_hours: float
    """Node-hours that all trials took."""
    winner: Ranked | None = None
    """What it recommends; null while nothing ran."""
    provisional: bool = False
    """Whether the winner may still change."""
    speedup_over_baseline: float | None = None
    """The winner's objective over the baseline's; null where there is no such figure."""
    progress: list[ProgressStep]
    """Improvements, trials on few nodes left out; the last repeats the best at the end of what was
    spent."""


class QuestionDifference(Wire):
    """What the campaigns were asked differently."""

    field: str
    """The field as the request names it, such as `space.tensor_parallel`."""
    values: list[str]
    """What each campaign has there, in their order."""


class CampaignComparison(Wire):
    """Campaigns side by side, in the order in which they were asked for."""

    campaigns: list[ComparedCampaign]
    """The campaigns."""
    differences: list[QuestionDifference]
    """What they were asked differently."""
    comparable: bool
    """Whether their rates may be held against each other."""
    sentence: str
    """What the comparison comes to, or why it is none."""
