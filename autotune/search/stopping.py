"""Rules that end a campaign's search."""

from __future__ import annotations

from datetime import datetime

from autotune.objectives import BETTER
from autotune.schemas.choices import Objective
from autotune.schemas.requests import Budget
from autotune.search.belief import DOUBT, MARGIN
from autotune.search.outlook import Outlook, Rival
from autotune.wording import token_count


def reason_to_stop(budget: Budget, *, trials: int, node_hours: float, now: datetime) -> str | None:
    """Return why no further trial may start, as a sentence; None while the budget lasts.

    Args:
        trials: number of the search's trials, including running ones but not confirmations.
        node_hours: spent, and committed to running trials.
        now: compared with `budget.deadline`; a deadline without a time zone is in the zone of
            `now`.
    """
    if trials >= budget.max_trials:
        plural = "" if budget.max_trials == 1 else "s"
        return f"The budget of {budget.max_trials} trial{plural} is spent."
    if budget.max_node_hours is not None and node_hours >= budget.max_node_hours:
        return f"The budget of {budget.max_node_hours:g} node-hours is spent ({node_hours:.3g})."
    if budget.deadline is not None and now >= _in_zone_of(now, budget.deadline):
        return f"The deadline, {budget.deadline.isoformat(timespec='minutes')}, has passed."
    return None


def reason_to_be_content(outlook: Outlook | None, *, objective: Objective) -> str | None:
    """Return why another trial is not worth its cost, as a sentence; None if it may be.

    Args:
        outlook: None before any measurement. It is no reason to stop if every layout was tried:
            then there is nothing to propose.
    """
    if outlook is None or not outlook.untried or outlook.probability_better >= DOUBT:
        return None
    return (
        f"The probability that a layout not yet tried is {MARGIN:.0%} {BETTER[objective]} is "
        f"{outlook.probability_better:.1%}, below {DOUBT:.0%}."
    )


def reason_to_spare(
    cost: float, *, saving: float, training: float, unit: str, tokens: float
) -> str | None:
    """Return why the next trial costs more than it is expected to save, as a sentence; None if it
    does not.

    Args:
        cost: expected cost of the trial.
        saving: share of the training's cost that it is expected to save.
        training: cost of `tokens` tokens with the best layout so far.
        unit: of both costs.
    """
    saved = saving * training
    if saved >= cost:
        return None
    return (
        f"The next trial would cost {cost:.2g} {unit} and is expected to save "
        f"{saved:.2g} over {token_count(tokens)} tokens."
    )


def is_worth_confirming(rival: Rival, *, cost: float, training: float | None) -> bool:
    """Return whether to measure a runner-up once more.

    Args:
        cost: expected cost of the confirmation.
        training: cost of the full training in the same unit; if not given, a runner-up that may
            well be better is worth it.
    """
    if training is None:
        return rival.probability_better >= DOUBT
    return rival.expected_saving * training >= cost


def _in_zone_of(now: datetime, deadline: datetime) -> datetime:
    """Return the deadline made comparable: both aware, or both naive."""
    if (now.tzinfo is None) == (deadline.tzinfo is None):
        return deadline
    return deadline.replace(tzinfo=now.tzinfo)
