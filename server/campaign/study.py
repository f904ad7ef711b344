"""What a scaling study starts next, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from autotune.resolution import strategy_of
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from autotune.search import reason_to_stop
from autotune.search.trial import UNINFORMATIVE, may_be_tried_again
from search_spaces.strategy import Strategy
from server.campaign.scheduling import NextTrials, NodeHours, free_nodes


def next_of_study(
    campaign: Campaign, trials: Sequence[Trial], strategies: Sequence[Strategy], *, now: datetime
) -> NextTrials:
    """Return the first strategy that is not yet measured, once enough nodes are free.

    Trials that ended in a way that says nothing about the strategy do not count towards the budget
    of trials; their strategy is measured again, up to ATTEMPTS times in total.

    Args:
        strategies: of the study, in the order in which they are measured.
    """
    following = next((each for each in strategies if _is_wanted(each, trials)), None)
    if following is None:
        return NextTrials(phase_ends="All trials of the study have run.")
    node_hours = NodeHours(campaign, trials)
    telling = [trial for trial in trials if trial.state not in UNINFORMATIVE]
    end = reason_to_stop(
        campaign.request.budget, trials=len(telling), node_hours=node_hours.committed, now=now
    )
    if end is not None:
        return NextTrials(phase_ends=_with_unmeasured(end, strategies, trials))
    most, needed = campaign.request.budget.max_node_hours, following.num_nodes
    foreseen = node_hours.committed + node_hours.expected(needed)
    if most is not None and any(trial.duration_s for trial in trials) and foreseen > most:
        end = f"The budget of {most:g} node-hours is too small for a trial on {needed} nodes more."
        return NextTrials(phase_ends=_with_unmeasured(end, strategies, trials))
    pending = [trial for trial in trials if trial.state is TrialState.PENDING]
    if needed > free_nodes(campaign, pending):
        return NextTrials()
    return NextTrials(strategies=(following,), purpose="study")


def _is_wanted(strategy: Strategy, trials: Sequence[Trial]) -> bool:
    return may_be_tried_again([t for t in trials if strategy_of(t.strategy) == strategy])


def _with_unmeasured(end: str, strategies: Sequence[Strategy], trials: Sequence[Trial]) -> str:
    left = sum(_is_wanted(each, trials) for each in strategies)
    return f"{end} {left} of {len(strategies)} trials of the study were not started."
