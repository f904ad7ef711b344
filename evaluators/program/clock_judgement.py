"""Check the iteration times that a trainer prints against the arrival times of its lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from evaluators.adapter.figures import ReportedIteration

CLOCKS_AGREE = 0.1
"""Maximum difference between the two, as a share of an iteration."""
BETWEEN_S = 0.02
"""Seconds that a trainer may spend between iterations, outside the printed time."""
BEFORE_S = 0.002
"""Seconds by which lines may arrive faster than the printed time."""
MOST_SPREAD = 0.3
"""Maximum share of an iteration attributed to a busy machine, so that a clock that is wrong by a
factor is still detected when arrivals are irregular."""
LEAST_SHARE = 0.05
"""Minimum share of the printed time in the interval between two lines, however short iterations
are."""


TOGETHER = 0.02
"""Lines that arrive within this share of all printed times were buffered until the end."""


@dataclass(frozen=True, kw_only=True)
class ClockJudgement:
    """Whether printed times are plausible.

    Attributes:
        told: the two clocks in words.
        together: all lines arrived at once, so their arrivals say nothing about single iterations.
    """

    good: bool
    told: str
    together: bool = False


def clock_judgement(iterations: Sequence[ReportedIteration]) -> ClockJudgement | None:
    """Return whether the two agree; None if the lines are not in order of arrival, like those of a
    file.

    Times of lines that arrive together are plausible if their sum does not exceed the duration of
    the run so far.

    On a busy machine lines arrive late. A late line changes one pair's difference, which the median
    ignores, and the next pair's in the opposite direction, which the mean ignores: the smaller of
    the two is compared. The tolerance is the spread of the differences (their median absolute
    deviation).
    """
    told = [each for each in iterations if each.arrived_s is not None]
    pairs = [(a, b) for a, b in pairwise(told) if b.step == a.step + 1][1:]
    if not pairs:
        return None
    last_s = told[-1].arrived_s or 0.0
    printed_in_all_s = sum(each.time_s or 0.0 for each in told)
    if last_s - (told[0].arrived_s or 0.0) < TOGETHER * printed_in_all_s:
        words = (
            f"{printed_in_all_s:.4g} s as they were read, all told {last_s:.4g} s after the start"
        )
        good = printed_in_all_s <= last_s * (1 + CLOCKS_AGREE)
        return ClockJudgement(good=good, told=words, together=good)
    between_s = [(b.arrived_s or 0.0) - (a.arrived_s or 0.0) for a, b in pairs]
    printed_s = [b.time_s or 0.0 for _, b in pairs]
    arrived_s = median(between_s)
    rests_s = [between - printed for between, printed in zip(between_s, printed_s, strict=True)]
    rest_s = median(rests_s)
    spread_s = min(median(abs(rest - rest_s) for rest in rests_s), MOST_SPREAD * arrived_s)
    rest_s = min(rest_s, fmean(rests_s), key=abs)
    agrees_s = CLOCKS_AGREE * arrived_s + spread_s
    good = -agrees_s - BEFORE_S <= rest_s <= agrees_s + BETWEEN_S
    good = good and median(printed_s) >= LEAST_SHARE * arrived_s
    words = f"{median(printed_s):.4g} s as they were read, {arrived_s:.4g} s between the lines"
    return ClockJudgement(good=good, told=words)
