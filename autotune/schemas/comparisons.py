"""Campaigns side by side."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from autotune.schemas.campaigns import CampaignState
from autotune.schemas.recommendations import Ranked
from autotune.schemas.wire import Objective, Wire

MOST_COMPARED = 8
"""More lines than this nobody tells apart in one chart."""


class ProgressStep(Wire):
    """The best rate so far, from here on."""

    trial: Annotated[int, Field(ge=1, description="number of the trial within its campaign")]
    node_hours: Annotated[float, Field(ge=0, description="spent on trials until then")]
    objective: float


class ComparedCampaign(Wire):
    """One of the campaigns, and what came of it."""

    campaign_id: int
    name: str
    state: CampaignState
    simulated: bool
    objective: Objective
    trials: int
    failures: int
    node_hours: float
    winner: Ranked | None = Field(None, description="what it recommends; None while nothing ran")
    provisional: bool = Field(False, description="the winner may still change")
    speedup_over_baseline: float | None = None
    progress: list[ProgressStep] = Field(
        description="improvements, trials on few nodes left out; the last repeats the best at the "
        "end of what was spent"
    )


class QuestionDifference(Wire):
    """What the campaigns were asked differently."""

    field: str = Field(description="as the request names it, such as `space.tensor_parallel`")
    values: list[str] = Field(description="of each campaign, in their order")


class CampaignComparison(Wire):
    """Campaigns side by side, in the order in which they were asked for."""

    campaigns: list[ComparedCampaign]
    differences: list[QuestionDifference]
    comparable: bool = Field(description="whether their rates may be held against each other")
    sentence: str = Field(description="what the comparison comes to, or why it is none")
