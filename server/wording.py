"""Numbers, durations and ages in words, as shown on the pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

from autotune.measurement.energy import JOULES_PER_MWH
from autotune.schemas.campaigns import Campaign, StartWorth
from autotune.schemas.recommendations import Neighbour, Ranked, TrainingCost, TrainingSaving
from autotune.schemas.resolution import strategy_of
from autotune.schemas.shapes import MachineShape, StrategyShape
from autotune.schemas.trials import Expectation, Trial, TrialMetrics
from autotune.words.dimensions import capitalised
from autotune.words.quantities import figure, listed
from search_spaces.dimensions import BY_NAME, DIVIDING, OF_EXPERTS
from search_spaces.transformer import Transformer

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
REASONS_SHOWN = 3
CAMPAIGNS_SHOWN = 3


UNEVEN = 0.5
"""Spread of a step's time, as a share of it, from which on it is no error of a measurement."""


def count(value: int) -> str:
    return f"{value:,}"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def not_started(reasons: Mapping[str, int]) -> str:
    """Return a remark: `2 trials not started yet: waiting for free nodes (Resources)`.

    Args:
        reasons: how many trials wait for each, "" where it is not known.
    """
    trials = f"{plural(sum(reasons.values()), 'trial')} not started yet"
    known = Counter({reason: number for reason, number in reasons.items() if reason})
    if len(known) < 2:
        return ": ".join([trials, *known])
    shown = [f"{number:,} × {reason}" for reason, number in known.most_common(REASONS_SHOWN)]
    others = len(known) - len(shown)
    return f"{trials}: " + ", ".join(shown + ([plural(others, "other reason")] if others else []))


def nothing_ran(campaign: Campaign) -> bool:
    ended = campaign.trials + campaign.confirmations - campaign.pending
    return 0 < ended <= campaign.failures


def started_from(campaign: Campaign) -> str:
    """Return which earlier trials a search started from, and how much they improved predictions;
    empty before it starts, and if unknown."""
    starts = campaign.started_from
    if starts is None:
        return ""
    if not starts:
        fresh = campaign.request.fresh
        return "scratch, as requested" if fresh else "scratch: no earlier trials match"
    named = [f"{start.campaign_id}{' (deleted)' if start.deleted else ''}" for start in starts]
    if len(named) > CAMPAIGNS_SHOWN + 1:
        others = plural(len(named) - CAMPAIGNS_SHOWN, "other")
        named = [*named[:CAMPAIGNS_SHOWN], others]
    trials = plural(sum(start.trials for start in starts), "trial")
    noun = "campaign" if len(starts) == 1 else "campaigns"
    return "; ".join([f"{trials} of {noun} {listed(named)}", *_start_worth(campaign.start_worth)])


def _start_worth(worth: StartWorth | None) -> list[str]:
    if worth is None:
        return []
    without, given = (
        f"{100 * error:.{0 if error >= 0.1 else 1}f} %"
        for error in (worth.error_without, worth.error_with)
    )
    words = "from {} to {} (median of {})".format(without, given, plural(worth.trials, "trial"))
    if worth.error_with > worth.error_without:
        return [f"they did not help: the prediction error rose {words}"]
    return [f"they reduced the prediction error {words}"]


def fastest_single(campaign: Campaign) -> str:
    """Return which single trial was faster than the recommendation; empty if none was."""
    fastest, best = campaign.fastest_objective, campaign.best_objective
    if fastest is None or best is None or figure(fastest) == figure(best):
        return ""
    return f"; fastest single trial: {figure(fastest)} (trial {campaign.fastest_trial})"


def projected_from(item: Ranked) -> str:
    return _projected(item.projected_from_nodes, item.projected_from_layers)


def best_origin(campaign: Campaign) -> str:
    if not campaign.best_projected_from_nodes:
        return mark(campaign.simulated)
    return f"projected, {mark(campaign.simulated)}"


def best_projected_from(campaign: Campaign) -> str:
    return _projected(campaign.best_projected_from_nodes, campaign.best_projected_from_layers)


def _projected(nodes: int | None, layers: int | None) -> str:
    if not nodes:
        return ""
    fewer = f"{plural(layers, 'layer')} on " if layers else ""
    return f"projected from {fewer}{plural(nodes, 'node')}"


def standing_of(item: Ranked) -> str:
    """Return what a runner-up's place follows from, before its rate does: layouts that were
    confirmed come first, then those that were not, those projected, those that leave too little
    memory, and last those that failed when they were run once more."""
    if item.failed_confirmation:
        how = "failed when run again"
    elif not item.keeps_headroom:
        how = "leaves too little memory"
    elif item.projected_from_nodes:
        how = projected_from(item)
    else:
        how = "confirmed" if item.confirmed else "not confirmed"
    return how if item.significant is not False else f"{how}, within the spread"


def why_chosen(trial: Trial) -> str:
    """Return why a trial was run and what was predicted, in a sentence or two; empty if unknown."""
    if trial.expected is None:
        return ""
    expected = trial.expected
    if trial.purpose == "confirmation":
        why = "Confirmation of one of the best layouts"
    elif trial.purpose == "baseline":
        why = "The baseline"
    elif expected.best_so_far is None:
        why = "Best predicted layout that may fit, before any measurement"
    else:
        why = "Highest expected gain per node-hour"
    fits = f"{probability(expected.fit_probability)} likely to fit"
    hours = expected.node_hours
    cost = f"about {figure(hours) if hours >= 10 else f'{hours:.2g}'} node-hours"
    return f"{why}. {_rate_expected(trial, expected)}; {fits}; {cost}."


def _rate_expected(trial: Trial, expected: Expectation) -> str:
    if expected.best_so_far is None:
        return f"Predicted {iteration_expected(trial)} an iteration"
    ratio = expected.objective / expected.best_so_far
    time_s = trial.predicted_iteration_time_s or 0.0
    ends = (expected.iteration_time_high_s, expected.iteration_time_low_s)
    changes = (round(100 * (ratio * time_s / end_s - 1)) for end_s in ends)
    low, high = (f"{change:+d}" if change else "0" for change in changes)
    change = round(100 * (ratio - 1))
    against = f"{abs(change)} % {'above' if change > 0 else 'below'}" if change else "level with"
    better = ""
    if trial.purpose == "search" and expected.probability_better is not None:
        better = f", {probability(expected.probability_better)} likely to be better"
    return f"Predicted {against} the best so far (80 %: {low} to {high} %){better}"


def iteration_expected(trial: Trial) -> str:
    """Return `10.2 s (80 %: 8.70 s to 11.9 s)`; only the time if the interval is unknown."""
    time_s, expected = seconds(trial.predicted_iteration_time_s), trial.expected
    if expected is None:
        return time_s
    low, high = seconds(expected.iteration_time_low_s), seconds(expected.iteration_time_high_s)
    return f"{time_s} (80 %: {low} to {high})"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def step_spread(metrics: TrialMetrics) -> str:
    """Return the spread of a step's time beside it: `± 12 ms`, or as a share of it where that is
    half or more, of which ± would promise times below nothing."""
    share = metrics.iteration_time_spread_s / metrics.iteration_time_s
    if share < UNEVEN:
        return f"± {seconds(metrics.iteration_time_spread_s)}"
    return f"(uneven: iterations differ by {share:.0%})"


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{1000 * value:.3g} ms" if value < 1 else f"{figure(value)} s"


def duration(value: float | None) -> str:
    """Return a long time in its two largest units: `45 s`, `3 min 20 s`, `1 h 5 min`, `2 d 3 h`."""
    if value is None:
        return "–"
    if round(value) < MINUTE:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    units = [(DAY, HOUR, "d", "h"), (HOUR, MINUTE, "h", "min"), (MINUTE, 1.0, "min", "s")]
    large, small, large_name, small_name = next(unit for unit in units if round(value) >= unit[0])
    whole, rest = divmod(round(value), large)
    tail = int(rest // small) if whole < 100 else 0
    return f"{whole:,.0f} {large_name}" + (f" {tail} {small_name}" if tail else "")


def age(moment: datetime | None, *, now: datetime | None = None) -> str:
    """Return how long ago it was, in one unit: `just now`, `5 min ago`, `3 d ago`."""
    if moment is None:
        return "–"
    passed = ((now or datetime.now(UTC)) - moment).total_seconds()
    for length, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if passed >= length:
            return f"{int(passed // length)} {name} ago"
    return "just now"


def parameters(number: float) -> str:
    """Return a model's size: `22.1B`, `345M`, `12K`."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.0f}"


def model_size(model: Transformer) -> str:
    """Return `70.6B parameters`, or `671B parameters, 37.6B active` for a mixture of experts."""
    whole = f"{parameters(model.parameters)} parameters"
    if model.experts is None:
        return whole
    return f"{whole}, {parameters(model.active_parameters)} active"


def axis_unit(longest_s: float) -> tuple[str, float]:
    """Return the unit in which an axis up to `longest_s` reads best, and its length in seconds."""
    for length, name in ((3 * DAY, "days"), (3 * HOUR, "hours"), (3 * MINUTE, "minutes")):
        if longest_s >= length:
            return name, length / 3
    return "seconds", 1.0


def probability(share: float | None) -> str:
    """Return `97 %`; no certainty is claimed: `> 99 %`, `< 1 %`."""
    if share is None:
        return "–"
    if share > 0.99:
        return "> 99 %"
    return "< 1 %" if share < 0.01 else f"{100 * share:.0f} %"


def mark(simulated: bool) -> str:
    return "simulated" if simulated else "measured"


def times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 1.2 else f"{ratio:.2g}x"


def gain(share: float) -> str:
    """Return the expected remaining gain, as a share of the rate."""
    if share >= 1.0:
        return f"a rate {times(1.0 + share)} as high may be left to find"
    if share < 0.0005:
        return "no further gain expected"
    return f"expected further gain {percent(share)}"


def confirmed(best: Ranked) -> str:
    known = "confirmed" if best.confirmed else "not confirmed"
    return projected_from(best) or known


def energy_origin(*, sampled: bool) -> str:
    return "sampled at the GPUs" if sampled else "predicted"


def training_energy(training: TrainingCost) -> str:
    """Return the energy of a training, of all nodes and of the GPUs alone, and its origin.

    `112 MWh, hosts included (predicted); the GPUs alone 70 MWh = 252 GJ`. Empty where the power is
    not known.
    """
    origin = energy_origin(sampled=training.energy_sampled)
    said = []
    if training.energy_mwh is not None:
        said.append(f"{figure(training.energy_mwh)} MWh, hosts included ({origin})")
    if training.gpu_energy_mwh is not None:
        gigajoule = training.gpu_energy_mwh * JOULES_PER_MWH / 1e9
        alone = f"{figure(training.gpu_energy_mwh)} MWh = {figure(gigajoule)} GJ"
        said.append(f"the GPUs alone {alone}" + ("" if said else f" ({origin})"))
    return "; ".join(said)


def saved(saving: TrainingSaving) -> str:
    """Return what a training saves and what it costs in addition: `saves 41 d 3 h and 58 MWh`."""
    amounts = [
        (saving.days, duration(abs(saving.days) * DAY)),
        (saving.node_hours, f"{figure(abs(saving.node_hours))} node-hours"),
    ]
    if saving.energy_mwh is not None:
        amounts.append((saving.energy_mwh, f"{figure(abs(saving.energy_mwh))} MWh"))
    less = [words for amount, words in amounts if amount > 0.0]
    more = [words for amount, words in amounts if amount < 0.0]
    said = [f"saves {listed(less)}"] if less else []
    said += [f"takes {listed(more)} more"] if more else []
    return " and ".join(said) or "takes as much"


def neighbour_state(item: Neighbour, *, simulated: bool) -> str:
    if item.state is None:
        return "predicted"
    return {"ok": mark(simulated), "oom": "out of memory", "failed": "failed"}[item.state]


def fits(item: Neighbour) -> str:
    if item.state in {"ok", "oom"}:
        return "yes" if item.fit_probability else "no"
    return probability(item.fit_probability)


def in_words(strategy: StrategyShape, machine: MachineShape) -> str:
    """Return a layout in words, without abbreviations such as TP and PP."""
    meanings = (
        BY_NAME[name].meaning[value > 1].format(value)
        for name in (*DIVIDING, *OF_EXPERTS)
        for value in [strategy.value(name)]
    )
    cut = capitalised("; ".join(filter(None, meanings)))
    copies = strategy_of(strategy).data_parallel(machine.gpus_per_node)
    replicas = (
        f"{count(copies)} replicas of the model train in parallel"
        if copies > 1
        else "there is one replica of the model"
    )
    each = plural(strategy.micro_batch_size, "sample")
    steps = strategy.gradient_accumulation_steps
    batches = f"{count(steps)} micro-batch{'' if steps == 1 else 'es'}"
    return f"{cut}; {replicas}, {batches} of {each} per step each."


def strategy_line(strategy: StrategyShape) -> str:
    return strategy_of(strategy).short()
