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
    """One campaign of a comparison, with its result."""

    campaign_id: int
    """The campaign."""
    name: str
    """Display name; may be empty."""
    state: CampaignState
    """Its state."""
    simulated: bool
    """Whether its results are simulated by the cost model."""
    objective: Objective
    """The objective: the metric that is maximised."""
    search: SearchMethod
    """Its search method."""
    surrogate: Surrogate | None = None
    """Surrogate of the search `deephyper`; null for any other."""
    trials: int
    """Trials of the search, including the baseline."""
    failures: int
    """Trials that failed."""
    node_hours: float
    """Node-hours of all trials."""
    winner: Ranked | None = None
    """Its recommended strategy; null until a trial succeeded."""
    provisional: bool = False
    """Whether the recommendation may still change."""
    speedup_over_baseline: float | None = None
    """Objective relative to the baseline; null if unknown."""
    progress: list[ProgressStep]
    """Improvements, without stand-in trials; the last point repeats the best at the final cost."""


class CampaignComparison(Wire):
    """Campaigns side by side, in the requested order."""

    campaigns: list[ComparedCampaign]
    """The campaigns."""
    comparable: bool
    """Whether their rates are comparable."""
    sentence: str
    """The result in a sentence, or why they cannot be compared."""
