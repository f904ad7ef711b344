"""When a campaign has had enough trials."""

from __future__ import annotations

from datetime import datetime

from autotune.schemas import Budget
from autotune.search.outlook import MARGIN, Outlook, Rival
from autotune.wording import token_count

DOUBT = 0.05
"""Probability of something better below which a search is over."""


def reason_to_stop(budget: Budget, *, trials: int, node_hours: float, now: datetime) -> str | None:
    """Return why no further trial may start, as a sentence; None while the budget lasts.

    Args:
        trials: of the search, running ones included; confirmations are not counted.
        node_hours: spent, and committed to running trials.
        now: compared with `budget.deadline`; a deadline without a time zone is taken in the zone
            of `now`.
    """
    if trials >= budget.max_trials:
        plural = "" if budget.max_trials == 1 else "s"
        return f"The budget of {budget.max_trials} trial{plural} is spent."
    if budget.max_node_hours is not None and node_hours >= budget.max_node_hours:
        return f"The budget of {budget.max_node_hours:g} node-hours is spent ({node_hours:.3g})."
    if budget.deadline is not None and now >= _in_zone_of(now, budget.deadline):
        return f"The deadline, {budget.deadline.isoformat(timespec='minutes')}, has passed."
    return None


def reason_to_be_content(outlook: Outlook | None) -> str | None:
    """Return why another trial is not worth its cost, as a sentence; None while one may be.

    Args:
        outlook: None while nothing is measured. Where all has been tried it is no reason: then
            there is nothing to propose.
    """
    if outlook is None or not outlook.untried or outlook.probability_better >= DOUBT:
        return None
    return (
        f"The probability that a layout not yet tried is {MARGIN:.0%} faster is "
        f"{outlook.probability_better:.1%}, below {DOUBT:.0%}."
    )


def reason_to_spare(
    node_hours: float, *, saving: float, training_node_hours: float, tokens: float
) -> str | None:
    """Return why the next trial costs more than it is expected to save, as a sentence; None where
    it does not.

    Args:
        node_hours: that it is expected to take.
        saving: share of the training's time that it is expected to save.
        training_node_hours: of `tokens` tokens with the best layout so far.
    """
    saved = saving * training_node_hours
    if saved >= node_hours:
        return None
    return (
        f"The next trial would cost {node_hours:.2g} node-hours and is expected to save "
        f"{saved:.2g} over {token_count(tokens)} tokens."
    )


def is_worth_confirming(
    rival: Rival, *, node_hours: float, training_node_hours: float | None
) -> bool:
    """Return whether to measure a runner-up once more.

    Args:
        node_hours: that it is expected to take.
        training_node_hours: that the layout is for; where not given, a runner-up is worth it that
            may well be faster.
    """
    if training_node_hours is None:
        return rival.probability_better >= DOUBT
    return rival.expected_saving * training_node_hours >= node_hours


def _in_zone_of(now: datetime, deadline: datetime) -> datetime:
    """Return the deadline made comparable: both aware, or both naive."""
    if (now.tzinfo is None) == (deadline.tzinfo is None):
        return deadline
    return deadline.replace(tzinfo=now.tzinfo)
