"""How long a trial goes on measuring: the one rule for every way in which trials run.

Nothing but the standard library is imported and nothing newer than Python 3.8 is used: the text of
this module goes along to nodes where this package is not installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from math import inf, sqrt
from statistics import median

FEWEST = 2
"""Iterations that say something: one alone may be slow by chance."""


class Verdict(IntEnum):
    """What follows from the iterations measured so far at one GAS."""

    GO_ON = 0
    ENOUGH = 1
    GIVE_UP = 2
    OUT_OF_TIME = 3


def verdict(
    times_s: Sequence[float],
    *,
    least: int,
    most: int,
    target_spread: float,
    long_s: float = inf,
    give_up_above_s: float = inf,
    spare_s: float = inf,
    left_s: float = inf,
) -> Verdict:
    """Return whether to measure another iteration at this GAS, or even to end the trial.

    Measuring ends once the median is known well enough. The trial ends where even the fastest
    iteration, less the median's standard error, takes too long for anything to come of it, and
    where the time limit would end it before the GAS values that are still to come.

    Args:
        times_s: seconds of each measured iteration so far, warm-up left out.
        least, most: iterations that are measured in any case, and at most.
        long_s: seconds of an iteration from which on two that agree are enough.
        target_spread: the standard error of the median, as a share of it, that is small enough.
        give_up_above_s: seconds of an iteration that are too many.
        spare_s: seconds that iterations beyond the least number may still take.
        left_s: seconds that are left of the trial once all that is still to come has been measured;
            less than none, and it is out of time.
    """
    count = len(times_s)
    error_s = standard_error_s(times_s)
    if count >= FEWEST and min(times_s) - error_s > give_up_above_s:
        return Verdict.GIVE_UP
    if count < min(least, FEWEST):
        return Verdict.GO_ON
    middle_s = median(times_s)
    settled = error_s <= target_spread * middle_s
    if count < least and not (settled and middle_s >= long_s):
        return Verdict.GO_ON
    if count >= most or settled or middle_s > spare_s:
        return Verdict.ENOUGH if left_s >= 0 else Verdict.OUT_OF_TIME
    return Verdict.GO_ON


def gave_up(accumulation: int, limit_s: float) -> str:
    """Return the log's line for a trial that was given up at this GAS."""
    return f"given up: no iteration at GAS {accumulation} takes as little as {limit_s:.4g} s"


def out_of_time(accumulation: int) -> str:
    """Return the log's line for a trial that ends after this GAS."""
    return f"given up: the time limit would end it before what comes after GAS {accumulation}"


def standard_error_s(times_s: Sequence[float]) -> float:
    """Return the standard error of the median, seconds; infinite for fewer than two times.

    Half of the distance between the order statistics that are `sqrt(n) / 2` places below and above
    the middle, which is one standard deviation of the binomial count of times below the median
    (Woodruff 1952, 'Confidence intervals for medians'), interpolated between neighbours and, for
    two times, a little beyond them. Unlike a standard deviation it hardly follows one slow
    iteration out of five or more.
    """
    if len(times_s) < 2:
        return inf
    ordered = sorted(times_s)
    middle, reach = (len(ordered) - 1) / 2, sqrt(len(ordered)) / 2
    return (_at(ordered, middle + reach) - _at(ordered, middle - reach)) / 2


def _at(ordered: Sequence[float], place: float) -> float:
    """Return the value at a place between 0 and n - 1, by linear interpolation."""
    low = max(0, min(len(ordered) - 2, int(place)))
    return ordered[low] + (place - low) * (ordered[low + 1] - ordered[low])
