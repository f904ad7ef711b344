"""A recommendation in words."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.answers.trial import Fact, energy_origin, metrics_facts, step_spread
from autotune.measurement.energy import JOULES_PER_MWH
from autotune.measurement.objectives import OBJECTIVE_UNITS
from autotune.schemas.figures import FigureTable
from autotune.schemas.knobs import KnobFindings, KnobResult
from autotune.schemas.plans import PlannedStrategy
from autotune.schemas.recommendations import (
    Baseline,
    Neighbour,
    ParetoFront,
    Ranked,
    Recommendation,
    TrainingCost,
    TrainingSaving,
)
from autotune.words.quantities import (
    DAY,
    duration,
    figure,
    gibibytes,
    listed,
    mark,
    percent,
    plural,
    probability,
    seconds,
    signed_percent,
    token_count,
)
from search_spaces.dimensions import setting_text


def projected_from(item: Ranked) -> str:
    return projected(item.projected_from_nodes, item.projected_from_layers)


def projected(nodes: int | None, layers: int | None) -> str:
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
        how = f"leaves only {gibibytes(item.memory_headroom_gib)}"
    elif item.projected_from_nodes:
        how = projected_from(item)
    else:
        how = "confirmed" if item.confirmed else "not confirmed"
    return how if item.significant is not False else f"{how}, within the spread"


def training_energy(training: TrainingCost) -> str:
    """Return the energy of a training, with and without the hosts, and its origin.

    `112 MWh, hosts included (predicted); 70 MWh (252 GJ) without hosts`. Empty where the power is
    not known.
    """
    origin = energy_origin(sampled=training.energy_sampled)
    parts = []
    if training.energy_mwh is not None:
        parts.append(f"{figure(training.energy_mwh)} MWh, hosts included ({origin})")
    if training.gpu_energy_mwh is not None:
        gigajoule = training.gpu_energy_mwh * JOULES_PER_MWH / 1e9
        gpus = f"{figure(training.gpu_energy_mwh)} MWh ({figure(gigajoule)} GJ) without hosts"
        parts.append(gpus + ("" if parts else f" ({origin})"))
    return "; ".join(parts)


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
    parts = [f"saves {listed(less)}"] if less else []
    parts += [f"takes {listed(more)} more"] if more else []
    return " and ".join(parts) or "takes as much"


def neighbour_state(item: Neighbour, *, simulated: bool) -> str:
    if item.state is None:
        return "predicted"
    return {"ok": mark(simulated), "oom": "out of memory", "failed": "failed"}[item.state]


def fits(item: Neighbour) -> str:
    if item.state in {"ok", "oom"}:
        return "yes" if item.fit_probability else "no"
    return probability(item.fit_probability)


def status_of(answer: Recommendation) -> str:
    """Return how the best was confirmed: `confirmed by another run`, `run once`, `provisional`."""
    best = answer.best
    if best.projected_from_nodes:
        how = "in full" if best.projected_from_layers else "on its own yet"
        return f"{projected_from(best)}, not run {how}"
    if answer.provisional:
        return "provisional"
    return "confirmed by another run" if best.confirmed else "run once"


def best_facts(answer: Recommendation) -> Iterator[Fact]:
    """Yield the metrics of the best layout, what the campaign optimises first."""
    if answer.objective != "tokens_per_s":
        rate = getattr(answer.best.metrics, answer.objective)
        yield "Objective", f"{figure(rate)} {OBJECTIVE_UNITS[answer.objective]}"
    best = answer.best
    origin = mark(answer.simulated)
    yield from metrics_facts(best.metrics, origin=origin, strategy=best.strategy)
    peak, left = answer.best.metrics.peak_memory_gib, answer.best.memory_headroom_gib
    room = "" if left is None else f", {gibibytes(left)} left"
    yield "Peak memory", f"{gibibytes(peak)} on the fullest rank{room}"
    yield "Status", status_of(answer)


def verdicts(answer: Recommendation) -> Iterator[Fact]:
    """Yield how the best compares with the baseline and the rest of the space."""
    if answer.baseline:
        yield "Against the baseline", answer.baseline.comparison
    if answer.standing:
        yield "In its space", answer.standing.sentence


def costs(answer: Recommendation) -> Iterator[Fact]:
    """Yield a faster layout that leaves less memory, the baseline's layout, and what a whole
    training and the search cost."""
    if answer.fuller:
        yield "Faster, but fuller", _fuller(answer.fuller)
    if answer.baseline:
        yield "Baseline", _layout(answer.baseline)
    yield "To train", _to_train(answer)
    spent = f"{plural(answer.trials, 'trial')}, {answer.failures} failed, "
    repaid = answer.saving.repaid_after_tokens if answer.saving else None
    after = "" if repaid is None else f", repaid after {token_count(repaid)} tokens of training"
    yield "Found by", f"{spent}{figure(answer.node_hours)} node-hours{after}"


def _fuller(item: Ranked) -> str:
    lead, left = percent(item.relative_to_best - 1.0), gibibytes(item.memory_headroom_gib)
    return f"{item.strategy.short()} is {lead} faster, but leaves only {left}."


def against(baseline: Baseline) -> str:
    return f"{baseline.comparison} It is {_layout(baseline)}."


def _layout(baseline: Baseline) -> str:
    rate = f", {figure(baseline.metrics.tokens_per_s)} tokens/s" if baseline.metrics else ""
    return f"{baseline.strategy.short()}{rate}"


def launch_figures(ranked: Ranked, *, simulated: bool) -> str:
    """Return a layout's time, rate and peak memory in words, and whether trials measured them."""
    metrics = ranked.metrics
    time, rate = seconds(metrics.iteration_time_s), figure(metrics.tokens_per_s)
    peak = gibibytes(metrics.peak_memory_gib)
    known = f"{time} per iteration, {rate} tokens/s, peak memory {peak}"
    numbers = listed([str(number) for number in ranked.trial_numbers])
    if ranked.projected_from_nodes:
        return f"{known}, projected from trials on other nodes or layers ({numbers}), not measured"
    origin = "simulated, not measured" if simulated else "measured"
    again = "confirmed by another run" if ranked.confirmed else "run once"
    noun = "trial" if len(ranked.trial_numbers) == 1 else "trials"
    return f"{known}, {origin} by {noun} {numbers}, {again}"


def predicted_figures(planned: PlannedStrategy) -> str:
    """Return the predicted time, rate and peak memory of a layout that no trial has run."""
    low, high = map(seconds, (planned.iteration_time_low_s, planned.iteration_time_high_s))
    return (
        f"predicted, not measured: {seconds(planned.iteration_time_s)} per iteration "
        f"(80 %: {low} to {high}), {figure(planned.tokens_per_s)} tokens/s, "
        f"peak memory {gibibytes(planned.memory_gib)}"
    )


def _to_train(answer: Recommendation) -> str:
    training = answer.training
    assumed = " (assumed: 20 for each parameter)" if training.assumed else ""
    energy = training_energy(training)
    parts = [
        f"{token_count(training.tokens)} tokens{assumed} take {duration(training.days * DAY)}",
        f"{figure(training.node_hours)} node-hours",
        *([energy] if energy else []),
    ]
    saving = f"; {saved(answer.saving)} compared with the baseline" if answer.saving else ""
    return ", ".join(parts) + saving


RUNNERS_UP = (
    "Rank",
    "Layout",
    "Tokens/s",
    "Of the best",
    "Iteration time",
    "MFU",
    "Headroom",
    "Status",
)


def runners_up(answer: Recommendation) -> FigureTable:
    """Return a row for each strategy after the best."""
    rows = [
        [
            str(each.rank),
            each.strategy.short(),
            figure(each.metrics.tokens_per_s),
            percent(each.relative_to_best),
            f"{seconds(each.metrics.iteration_time_s)} {step_spread(each.metrics)}",
            percent(each.metrics.mfu),
            gibibytes(each.memory_headroom_gib),
            standing_of(each),
        ]
        for each in answer.runners_up
    ]
    return FigureTable(columns=[*RUNNERS_UP], rows=rows)


SIGN_DIFFERS = "Faster at one micro-batch size, slower at the other."


def knob_gains(found: KnobFindings) -> dict[str, str]:
    """Return each adopted knob with its value and what it gave: `off, 3.1 % faster (...)`."""
    return {
        each.knob: f"{setting_text(each.value)}, {_faster(each)}"
        for each in found.results
        if found.settings.get(each.knob) == each.value
    }


def _faster(found: KnobResult | KnobFindings) -> str:
    if found.gain is None:
        return "not yet measured together"
    low, high = percent(found.gain_low), percent(found.gain_high)
    return f"{percent(found.gain)} faster (80 %: {low} to {high})"


def knob_sentence(found: KnobFindings) -> str:
    """Return which values to use and their gain, and whether to search the layout again: `Use
    overlap = off: 3.1 % faster (...).`"""
    names = [f"{knob} = {setting_text(value)}" for knob, value in found.settings.items()]
    use = f"Use {listed(names)}: {_faster(found)}."
    sentences = [use if names else "None of the knobs that were tried is adopted.", found.reopened]
    return " ".join(filter(None, sentences))


def runner_up_with_knobs(answer: Recommendation) -> str:
    """Return whether the runner-up is faster than the best, each with its knobs; empty if not, or
    if none were tried on it."""
    best, second = answer.knobs, answer.runner_up_knobs
    if best is None or second is None or not second.settings:
        return ""
    ratio = answer.runners_up[0].relative_to_best * (1.0 + (second.gain or 0.0))
    ratio /= 1.0 + (best.gain or 0.0)
    if ratio <= 1.0 + (answer.noise_floor or 0.0):
        return ""
    lead, layout = percent(ratio - 1.0), second.launched.short()
    return f"With its knobs, rank 2 is {lead} faster than the best with its own: {layout}."


def knob_rows(found: KnobFindings) -> FigureTable:
    """Return a row for each value of a knob that was tried."""
    size = found.other_micro_batch_size
    other = [f"Gain at MBS {size}"] if size else []
    rows = []
    for each in found.results:
        at_other = [signed_percent(each.gain_at_other_size)] if size else []
        seen = f"in {each.seen_in}" if each.seen_in else "not seen"
        low, high = signed_percent(each.gain_low), signed_percent(each.gain_high)
        gain = "–" if each.gain is None else f"{signed_percent(each.gain)} ({low} to {high})"
        row = [each.knob, setting_text(each.value), each.decision, gain, *at_other]
        why = SIGN_DIFFERS if each.sign_differs else each.why
        rows.append([*row, str(each.starts), seen, why])
    columns = ["Knob", "Value", "Decision", "Gain (80 %)", *other, "Starts", "Effect", "Reason"]
    return FigureTable(columns=columns, rows=rows)


def noise(answer: Recommendation) -> str:
    """Return which differences are noise; empty where it was not measured."""
    if answer.noise_floor is None:
        return ""
    return f"Differences below {percent(answer.noise_floor)} are noise here."


def neighbours(answer: Recommendation) -> FigureTable:
    """Return a row for each layout that is one step from the best."""

    def interval(item: Neighbour) -> str:
        low, high = item.relative_low, item.relative_high
        return "–" if low is None else f"{percent(low)} to {percent(high)}"

    return FigureTable(
        columns=["One step away", "State", "Of the best", "80 % interval", "Fits"],
        rows=[
            [
                each.step,
                neighbour_state(each, simulated=answer.simulated),
                percent(each.relative_to_best),
                interval(each),
                fits(each),
            ]
            for each in (answer.standing.neighbours if answer.standing else [])
        ],
    )


def front(found: ParetoFront) -> FigureTable:
    """Return a row for each layout on a Pareto front; energies only where one is known."""
    with_energy = any(point.joules_per_token is not None for point in found.points)
    rows = []
    for point in found.points:
        notes = ["" if point.confirmed else "not confirmed"]
        notes += ["energy predicted"] if with_energy and not point.energy_sampled else []
        layout = point.strategy.short()
        row = [layout, str(point.strategy.num_nodes), figure(point.tokens_per_s)]
        row += [figure(point.joules_per_token)] if with_energy else []
        rows.append([*row, ", ".join(filter(None, notes))])
    energy = ["J/token, hosts included"] if with_energy else []
    return FigureTable(columns=["Layout", "Nodes", "Tokens/s", *energy, "Status"], rows=rows)
