"""What a reader of a recommendation should know before trusting it, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.recommendation.ranking import Contender
from autotune.schemas import Campaign, Trial, TrialState

FEW_TRIALS = 8
"""Successful search trials below which the search has hardly begun."""

SURPRISE = 0.05
"""Relative difference of a confirmation from what the search had said that is worth a word."""


def caveats(campaign: Campaign, ranked: Sequence[Contender], trials: Sequence[Trial]) -> list[str]:
    """Of the recommendation with these contenders, best first (at least one)."""
    best = ranked[0]
    found = [
        _simulated(campaign),
        _no_peak(campaign),
        _unconfirmed(best),
        _predicted(best),
        _confirmation_differs(best),
        _failed_confirmations(ranked),
        _few_trials(trials),
        _close_race(ranked),
        _global_batch(ranked),
    ]
    return [sentence for sentence in found if sentence is not None]


def _simulated(campaign: Campaign) -> str | None:
    if not campaign.simulated:
        return None
    return "Simulated: every figure is the cost model's with noise, not a measurement."


def _no_peak(campaign: Campaign) -> str | None:
    if campaign.simulated or campaign.machine.peak_tflops is not None:
        return None
    return (
        f"No peak is known for {campaign.machine.gpu}, so no MFU is given; figures measured on "
        "CPUs show that the plumbing works, not what GPUs would reach."
    )


def _unconfirmed(best: Contender) -> str | None:
    if best.failed_confirmation:
        return "The best strategy failed when it was measured once more; no other succeeded."
    if best.confirmed:
        return None
    return "The best strategy was measured by one search trial and has not been confirmed yet."


def _predicted(best: Contender) -> str | None:
    figures, depth = best.metrics, best.strategy.pipeline_parallel
    if figures.measured:
        return None
    gas = figures.gradient_accumulation_steps
    sentence = f"Its iteration time at GAS {gas} follows from two other measured GAS values"
    if gas < depth:
        return (
            f"{sentence}; the law is unreliable there, below the pipeline's {depth} stages, where "
            "it can be off by more than half."
        )
    return f"{sentence} by a law that is within a few per cent as a rule."


def _confirmation_differs(best: Contender) -> str | None:
    searched = [t.metrics for t in best.trials if t.purpose == "search" and t.metrics]
    if not best.confirmed or not searched:
        return None
    said = searched[0].iteration_time_s
    difference = best.metrics.iteration_time_s / said - 1
    if abs(difference) <= SURPRISE:
        return None
    return (
        f"Measured once more it took {best.metrics.iteration_time_s:.4g} s an iteration, "
        f"{abs(difference):.0%} {'more' if difference > 0 else 'less'} than the {said:.4g} s "
        "of the search."
    )


def _failed_confirmations(ranked: Sequence[Contender]) -> str | None:
    numbers = [one.trials[0].number for one in ranked[1:] if one.failed_confirmation]
    if not numbers:
        return None
    named = ", ".join(str(number) for number in sorted(numbers))
    if len(numbers) == 1:
        return f"The layout of trial {named} failed when measured once more, and is ranked last."
    return f"The layouts of trials {named} failed when measured once more, and are ranked last."


def _few_trials(trials: Sequence[Trial]) -> str | None:
    count = sum(t.state is TrialState.OK and t.purpose == "search" for t in trials)
    if count >= FEW_TRIALS:
        return None
    return (
        f"Only {count} search trial{' has' if count == 1 else 's have'} succeeded; a better layout "
        "may not have been tried."
    )


def _close_race(ranked: Sequence[Contender]) -> str | None:
    best = ranked[0]
    level = [one for one in ranked[1:] if not one.failed_confirmation and not best.beats(one)]
    if not level:
        return None
    faster = max(one.rate for one in level)
    if faster > best.rate:
        lead = f"{faster / best.rate - 1:.1%}"
        return (
            f"The search measured an unconfirmed layout {lead} faster; confirmed ones rank first."
        )
    return (
        f"{len(level)} other layout{' is' if len(level) == 1 else 's are'} level with the best: "
        "the difference is within the spread of the measurements."
    )


def _global_batch(ranked: Sequence[Contender]) -> str | None:
    """The convergence guard: a faster step of another batch is not the same training."""
    sizes = sorted({one.metrics.global_batch_size for one in ranked})
    if len(sizes) == 1:
        return None
    return (
        f"The best strategy trains with a global batch of {ranked[0].metrics.global_batch_size} "
        f"samples, and the measured layouts with {sizes[0]} to {sizes[-1]}: a different global "
        "batch may converge differently. Fix global_batch_size to compare at one."
    )
