"""The stopping rule for measurements, shared by all backends.

Standard library and Python 3.8 only: the text of this module is sent to nodes without this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from math import inf, sqrt
from statistics import median

FEWEST = 2
"""Minimum iterations: a single one may be slow by chance."""


class Verdict(IntEnum):
    """The decision after the iterations measured so far at one GAS."""

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
    """Return whether to measure another iteration at this GAS, or to end the trial.

    Measuring stops once the median is precise enough. The trial ends if even the fastest iteration,
    minus the median's standard error, is too slow to be of interest, or if the remaining GAS values
    would exceed the time limit.

    Args:
        times_s: seconds of each measured iteration so far, without warm-up.
        least, most: minimum and maximum number of iterations.
        long_s: iteration time in seconds above which two iterations that agree are enough.
        target_spread: relative standard error of the median that is precise enough.
        give_up_above_s: iteration time in seconds that is too slow.
        spare_s: seconds available for iterations beyond the minimum.
        left_s: seconds left after everything still to be measured; negative if the trial is out of
            time.
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
    return f"given up: no iteration at GAS {accumulation} takes as little as {limit_s:.4g} s"


def out_of_time(accumulation: int) -> str:
    return f"given up: the time limit would end it before what comes after GAS {accumulation}"


def standard_error_s(times_s: Sequence[float]) -> float:
    """Return the standard error of the median in seconds; infinite for fewer than two times.

    Half of the distance between the order statistics `sqrt(n) / 2` ranks below and above the
    middle, one standard deviation of the binomial count of times below the median (Woodruff 1952,
    'Confidence intervals for medians'), interpolated, and for two times slightly extrapolated.
    Unlike a standard deviation it is robust to one slow iteration out of five or more.
    """
    if len(times_s) < 2:
        return inf
    ordered = sorted(times_s)
    middle, reach = (len(ordered) - 1) / 2, sqrt(len(ordered)) / 2
    return (_at(ordered, middle + reach) - _at(ordered, middle - reach)) / 2


def _at(ordered: Sequence[float], place: float) -> float:
    low = max(0, min(len(ordered) - 2, int(place)))
    return ordered[low] + (place - low) * (ordered[low + 1] - ordered[low])
