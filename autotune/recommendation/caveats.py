"""Caveats of a recommendation, in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.measurement.metrics import another_model
from autotune.measurement.objectives import BETTER, headroom_of
from autotune.recommendation.ranking import Contender
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from autotune.words.dimensions import any_value_words
from autotune.words.failures import cause_of
from search_spaces.dimensions import ACCUMULATION, TABLE
from search_spaces.rules import experts_across_network

FEW_TRIALS = 8
"""Successful search trials below which the search has hardly begun."""

SURPRISE = 0.05
"""Relative difference between a confirmation and the search's figure that is worth a word."""


FEWEST_CRASHES = 2
"""Trials of one kind that crashed alike, from which on it is the kind that is worth a word."""

TELLING = frozenset({TrialState.OK, TrialState.CRASHED, TrialState.TIMEOUT})
"""States that tell whether a kind of layout runs. Memory is a layout's own, and an allocation that
was lost is no layout's."""

OF_MEMORY = re.compile(r"memory|\bRAM\b|SIGKILL", re.IGNORECASE)

SWITCHED = [d.name for d in TABLE if d.is_switch]
NOT_SWITCHED = [d.name for d in TABLE if not d.is_switch and d.name != ACCUMULATION]
"""Dimensions of a layout, but for those that are on or off."""

LONGEST_ERROR = 160


def caveats(campaign: Campaign, ranked: Sequence[Contender], trials: Sequence[Trial]) -> list[str]:
    """Return the caveats of a recommendation with these contenders, best first (at least one)."""
    best = ranked[0]
    sentences = [
        _without_peak(campaign),
        _headroom(campaign, ranked),
        _confirmation(campaign, best),
        _unlikely_to_fit(best),
        _predicted(best),
        _failed_confirmations(ranked),
        _few_trials(trials),
        *_crashed_kinds(trials),
        _another_model(trials),
        _balanced_routing(best),
        _experts_across_network(campaign, best),
        _close_race(campaign, ranked),
        _global_batch(ranked),
    ]
    return [sentence for sentence in sentences if sentence is not None]


def _without_peak(campaign: Campaign) -> str | None:
    if campaign.simulated or campaign.machine.peak_tflops is not None:
        return None
    return (
        f"No peak is known for {campaign.machine.gpu}, so no MFU is given; rates measured on "
        "CPUs say nothing about GPUs."
    )


def _headroom(campaign: Campaign, ranked: Sequence[Contender]) -> str | None:
    machine, best = campaign.machine, ranked[0]
    peak, requested = best.metrics.peak_memory_gib, campaign.request.min_headroom_gib
    if peak is None:
        return (
            "Peak memory of the best strategy is unknown, so the requested "
            f"{requested:g} GiB of headroom could not be checked."
            if requested
            else None
        )
    left = f"{max(0.0, machine.memory_gib - peak):.2g} GiB"
    needed = headroom_of(None, campaign.model, machine)
    if not best.keeps_headroom:
        wanted = f"{requested:g} GiB" if requested else f"the {needed:.2g} GiB a training may need"
        return f"No measured layout leaves {wanted}; the best leaves {left}."
    if requested is not None and machine.memory_gib - needed < peak <= machine.memory_gib:
        return f"The best leaves {left} of memory, and a training may need {needed:.2g} GiB."
    count = sum(not contender.keeps_headroom for contender in ranked)
    if not count or not requested:
        return None
    return (
        f"{count} measured layout{' leaves' if count == 1 else 's leave'} less than {requested:g} "
        f"GiB of memory and {'is' if count == 1 else 'are'} ranked last."
    )


def _confirmation(campaign: Campaign, best: Contender) -> str | None:
    if best.failed_confirmation:
        return "The best strategy failed when it was measured again; no other succeeded."
    if best.projected_from_layers is not None:
        return f"The best strategy is {_from_layers(campaign, best)}, not measured in full."
    if best.projection is not None:
        return (
            f"The best strategy is projected from {best.projected_from_nodes} nodes and has not "
            f"been measured on {best.strategy.num_nodes} yet."
        )
    if not best.confirmed:
        return "The best strategy was measured by one search trial and has not been confirmed yet."
    searched = [t.metrics for t in best.trials if t.purpose != "confirmation" and t.metrics]
    if not searched:
        return None
    before_s = searched[0].iteration_time_s
    difference = best.metrics.iteration_time_s / before_s - 1
    if abs(difference) <= SURPRISE:
        return None
    return (
        f"The confirmation took {best.metrics.iteration_time_s:.4g} s per iteration, "
        f"{abs(difference):.0%} {'more' if difference > 0 else 'less'} than the {before_s:.4g} s "
        "of the search."
    )


def _from_layers(campaign: Campaign, projected: Contender) -> str:
    full, nodes = campaign.model.num_layers, projected.projected_from_nodes
    return f"projected from {projected.projected_from_layers} of {full} layers on {nodes} nodes"


def _unlikely_to_fit(best: Contender) -> str | None:
    if best.projected_from_layers is None or best.keeps_headroom:
        return None
    return "With all its layers, the best strategy probably does not fit into memory."


def _predicted(best: Contender) -> str | None:
    figures, depth = best.metrics, best.strategy.pipeline_parallel
    if figures.measured or best.projection is not None:
        return None
    gas = figures.gradient_accumulation_steps
    sentence = f"Its iteration time at GAS {gas} follows from two other measured GAS values"
    if gas < depth:
        return (
            f"{sentence}; below the pipeline's {depth} stages this law is unreliable and can be "
            "off by more than half."
        )
    return f"{sentence}, usually within a few percent."


def _failed_confirmations(ranked: Sequence[Contender]) -> str | None:
    failed = [contender for contender in ranked[1:] if contender.failed_confirmation]
    numbers = sorted(contender.trials[0].number for contender in failed)
    if not numbers:
        return None
    named = ", ".join(str(number) for number in numbers)
    if len(numbers) == 1:
        return f"The layout of trial {named} failed when measured again, and ranks last."
    return f"The layouts of trials {named} failed when measured again, and rank last."


def _few_trials(trials: Sequence[Trial]) -> str | None:
    count = sum(t.state is TrialState.OK and t.purpose != "confirmation" for t in trials)
    if count >= FEW_TRIALS:
        return None
    return (
        f"Only {count} search trial{' has' if count == 1 else 's have'} succeeded; a better layout "
        "may not have been tried."
    )


def _another_model(trials: Sequence[Trial]) -> str | None:
    differing = [trial for trial in trials if another_model(trial.metrics)]
    if not differing:
        return None
    first = min(differing, key=lambda trial: trial.number)
    others = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
    return (
        f"In trial {first.number}{others} {another_model(first.metrics)}: it trains another model, "
        "or its adapter reads only a part's parameters; all figures are worked out for the "
        "model that was asked for."
    )


def _balanced_routing(best: Contender) -> str | None:
    if best.metrics.routing != "balanced":
        return None
    return (
        "Measured with tokens dealt out evenly to the experts: with a learned routing an iteration "
        "takes longer, about 20 % in a published comparison, and the GPUs with the most tokens may "
        "need more memory."
    )


def _experts_across_network(campaign: Campaign, best: Contender) -> str | None:
    model, machine = campaign.model, campaign.machine
    across = experts_across_network(best.strategy, model, machine)
    return None if across is None else f"The best strategy's {across}."


def _close_race(campaign: Campaign, ranked: Sequence[Contender]) -> str | None:
    best = ranked[0]
    better = BETTER[best.objective]
    level = [
        other
        for other in ranked[1:]
        if not other.failed_confirmation and other.keeps_headroom is best.keeps_headroom
    ]
    level = [other for other in level if not best.beats(other)]
    ahead = max(level, key=lambda other: other.rate, default=best)
    if ahead.projection is not None and best.projection is None and ahead.rate > best.rate:
        lead = f"{ahead.rate / best.rate - 1:.1%} {better}"
        if ahead.projected_from_layers is not None:
            source = _from_layers(campaign, ahead)
            return f"A layout is {lead}, {source}; layouts measured in full rank first."
        return (
            f"A layout is projected {lead} from {ahead.projected_from_nodes} nodes; layouts "
            "measured on all nodes rank first."
        )
    if not level:
        return None
    if ahead.rate > best.rate:
        lead = f"{ahead.rate / best.rate - 1:.1%} {better}"
        if best.confirmed and not ahead.confirmed:
            return f"The search measured an unconfirmed layout {lead}; confirmed ones rank first."
        return f"A layout is {lead}, within the spread, and leaves less memory."
    return (
        f"{len(level)} other layout{' is' if len(level) == 1 else 's are'} level with the best: "
        "the difference is within the spread of the measurements."
    )


def _global_batch(ranked: Sequence[Contender]) -> str | None:
    sizes = sorted({contender.metrics.global_batch_size for contender in ranked})
    if len(sizes) == 1:
        return None
    return (
        f"The best strategy trains with a global batch of {ranked[0].metrics.global_batch_size} "
        f"samples, and the measured layouts with {sizes[0]} to {sizes[-1]}: a different global "
        "batch may converge differently. Fix the global batch to compare layouts at the same one."
    )


@dataclass(frozen=True, kw_only=True)
class CrashedKind:
    """Trials that share the values of a dimension and all crashed with the same error, numbers
    aside.

    Attributes:
        numbers: of the trials that crashed.
        without_memory: whether others of the kind ran out of memory.
    """

    dimension: str
    values: tuple[Any, ...]
    numbers: frozenset[int]
    error: str
    without_memory: bool

    @property
    def words(self) -> str:
        # Both values of a switch cannot have crashed everywhere: nothing would be recommended.
        words = any_value_words(self.dimension, self.values)
        return words if self.dimension in SWITCHED else f"with {words}"


def _crashed_kinds(trials: Sequence[Trial]) -> Iterator[str]:
    """Yield a sentence for each kind of layout that never ran for a shared reason.

    Only the widest kind is named, not the kinds within it. If several dimensions fit the same
    trials, all are named, because any may be the cause.
    """
    if not any(trial.state in TELLING and _error_of(trial) for trial in trials):
        return
    ordered = sorted(trials, key=lambda trial: trial.number)
    own = dict.fromkeys(name for trial in ordered for name, _ in trial.strategy.settings)
    names = (*SWITCHED, *NOT_SWITCHED, *own)
    kinds = [kind for name in names for kind in _kinds_of(name, ordered)]
    explained: set[int] = set()
    for kind in sorted(kinds, key=lambda kind: -len(kind.numbers)):
        if len(kind.numbers - explained) >= FEWEST_CRASHES:
            explained |= kind.numbers
            same = [other.words for other in kinds if other.numbers == kind.numbers]
            count, error = len(kind.numbers), kind.error
            shown = error if len(error) <= LONGEST_ERROR else f"{error[:LONGEST_ERROR]}…"
            crashed = "Both trials" if count == 2 else f"All {count} trials"
            memory = " that did not run out of memory" if kind.without_memory else ""
            yield (
                f"{crashed} {' and '.join(same)}{memory} crashed ({shown.rstrip('.')}): the "
                "rate of such layouts is unknown."
            )


def _kinds_of(dimension: str, trials: Sequence[Trial]) -> Iterator[CrashedKind]:
    by_value: dict[Any, list[Trial]] = {}
    for trial in trials:
        by_value.setdefault(trial.strategy.value(dimension), []).append(trial)
    by_error: dict[str, list[Any]] = {}
    for value, same in by_value.items():
        errors = {_error_of(trial) for trial in same if trial.state in TELLING}
        if len(errors) == 1 and (error := errors.pop()) is not None:
            by_error.setdefault(error, []).append(value)
    for values in by_error.values():
        kind = [trial for value in values for trial in by_value[value]]
        crashed = [trial for trial in kind if trial.state is TrialState.CRASHED]
        yield CrashedKind(
            dimension=dimension,
            values=tuple(sorted(values)),
            numbers=frozenset(trial.number for trial in crashed),
            error=crashed[0].error or "",
            without_memory=any(trial.state is TrialState.OOM for trial in kind),
        )


def _error_of(trial: Trial) -> str | None:
    crashed = trial.state is TrialState.CRASHED
    if not crashed or not trial.error or OF_MEMORY.search(trial.error):
        return None
    return cause_of(trial.error)
