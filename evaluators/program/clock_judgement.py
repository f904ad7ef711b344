"""Whether the times that a trainer prints are those between the arrivals of its lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from evaluators.adapter.figures import ToldIteration

CLOCKS_AGREE = 0.1
"""Share of an iteration by which the two may differ."""
BETWEEN_S = 0.02
"""That a trainer may take between two iterations, outside of the time that it prints."""
BEFORE_S = 0.002
"""By which the lines may follow each other faster than they say."""
MOST_SPREAD = 0.3
"""Share of an iteration that a busy machine may add: where lines come at any time, a clock that is
wrong by a factor is to be seen all the same."""
LEAST_SHARE = 0.05
"""Of the time between two lines that a printed time is, however short iterations are."""


TOGETHER = 0.02
"""Share of all printed times within which lines arrive that a trainer keeps back until its end."""


@dataclass(frozen=True, kw_only=True)
class ClockJudgement:
    """Whether printed times can be true.

    Attributes:
        told: the two clocks in words.
        together: all lines came at once, so that arrivals say nothing of single iterations.
    """

    good: bool
    told: str
    together: bool = False


def clock_judgement(iterations: Sequence[ToldIteration]) -> ClockJudgement | None:
    """Return whether the two agree; None where lines come in no such order, as those of a file do.

    Times of lines that come together are plausible where all of them are no longer than the start
    was until then.

    On a busy machine lines come late. One that does makes a pair differ, which the median does not
    feel, and the next pair as much to the other side, which the mean does not: the smaller of the
    two counts. It may be as large as the pairs' differences are spread (their median absolute
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
