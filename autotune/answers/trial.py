"""A trial in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autotune.answers.layout import utilisation
from autotune.measurement.metrics import another_model
from autotune.schemas.choices import ChosenBy
from autotune.schemas.trials import Expectation, Trial, TrialMetrics
from autotune.words.quantities import (
    count,
    duration,
    figure,
    gibibytes,
    mark,
    percent,
    plural,
    probability,
    seconds,
)
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy

Fact = tuple[str, str]
"""A label and its value."""
CHOICES: Mapping[ChosenBy, str] = {
    "random": "Chosen at random",
    "grid": "Next in the order of the grid",
    "surrogate": "Chosen by DeepHyper's surrogate",
}
UNEVEN = 0.5
"""Relative spread above which step times are reported as uneven."""


def why_chosen(trial: Trial) -> str:
    """Return why a trial was run and what was predicted, in a sentence or two; empty if unknown."""
    if trial.expected is None:
        return ""
    expected = trial.expected
    if trial.purpose == "confirmation":
        why = "Confirmation of one of the best layouts"
    elif trial.purpose == "knob":
        why = "A start of the best layout with knobs, or without them for comparison"
    elif trial.purpose == "baseline":
        why = "The baseline"
    elif expected.chosen_by is not None:
        why = CHOICES[expected.chosen_by]
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
        return f"Predicted {iteration_expected(trial)} per iteration"
    ratio = expected.objective / expected.best_so_far
    time_s = trial.predicted_iteration_time_s or 0.0
    ends = (expected.iteration_time_high_s, expected.iteration_time_low_s)
    changes = (round(100 * (ratio * time_s / end_s - 1)) for end_s in ends)
    low, high = (f"{change:+d}" if change else "0" for change in changes)
    change = round(100 * (ratio - 1))
    against = f"{abs(change)} % {'above' if change > 0 else 'below'}" if change else "the same as"
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


def step_spread(metrics: TrialMetrics) -> str:
    """Return the spread of a step's time: `± 12 ms`; from UNEVEN on as a share, since ± would then
    include times near zero; empty for a single time."""
    if not metrics.iteration_time_spread_s:
        return ""
    share = metrics.iteration_time_spread_s / metrics.iteration_time_s
    if share < UNEVEN:
        return f"± {seconds(metrics.iteration_time_spread_s)}"
    return f"(uneven: iterations differ by {share:.0%})"


def energy_origin(*, sampled: bool) -> str:
    return "sampled at the GPUs" if sampled else "predicted"


def metrics_facts(
    metrics: TrialMetrics, *, origin: str, strategy: Strategy | None = None
) -> Iterator[Fact]:
    """Yield the metrics of a strategy, with their `origin`: measured, simulated or imported."""
    derived = "" if metrics.measured else ", derived from two other GAS values"
    time = f"{seconds(metrics.iteration_time_s)} {step_spread(metrics)}".rstrip()
    yield "Iteration time", f"{time}, {origin}{derived}"
    yield (
        "Throughput",
        f"{figure(metrics.tokens_per_s)} tokens/s, {figure(metrics.tokens_per_s_per_gpu)} per GPU",
    )
    flops = f"{figure(metrics.model_tflops_per_gpu)} TFLOP/s per GPU"
    shares = (
        f", MFU {percent(metrics.mfu)}, HFU {utilisation(metrics.hfu, strategy)}"
        if metrics.mfu
        else ""
    )
    yield "Model FLOPs", flops + shares
    yield "Per million tokens", _per_million_tokens(metrics)
    yield "Global batch", f"{count(metrics.global_batch_size)} samples"


def _per_million_tokens(metrics: TrialMetrics) -> str:
    hours = f"{figure(1e6 / metrics.tokens_per_node_hour)} node-hours"
    if metrics.tokens_per_joule is None:
        return hours
    origin = energy_origin(sampled=metrics.energy_sampled)
    return f"{hours}; {figure(1 / metrics.tokens_per_joule)} MJ, hosts included ({origin})"


def peak_memory(trial: Trial) -> str:
    measured = trial.metrics.peak_memory_gib if trial.metrics else None
    return gibibytes(max(trial.peak_memory_gib_by_rank, default=measured))


def energy(trial: Trial) -> str:
    if trial.gpu_joules_per_token is None:
        return trial.energy_note
    return f"{figure(trial.gpu_joules_per_token)} J/token ({trial.energy_note})"


def trial_facts(trial: Trial, machine: Machine) -> Iterator[Fact]:
    """Yield everything known about a trial, from its prediction to its job."""
    metrics = trial.metrics
    if metrics is not None:
        origin = "imported" if trial.purpose == "imported" else mark(trial.simulated)
        yield from metrics_facts(metrics, origin=origin, strategy=trial.strategy)
    usable = f"of {gibibytes(machine.memory_gib)}"
    peaks = trial.peak_memory_gib_by_rank
    least = f", {gibibytes(min(peaks))} on the emptiest GPU" if len(peaks) > 1 else ""
    yield "Peak memory", f"{peak_memory(trial)} {usable}{least}"
    yield "Predicted iteration time", iteration_expected(trial)
    yield "Predicted memory", f"{gibibytes(trial.predicted_memory_gib)} {usable}"
    for each in trial.accumulations:
        if each.measured:
            rate = f"{seconds(each.iteration_time_s)}, {figure(each.tokens_per_s)} tokens/s"
            yield f"At {plural(each.gradient_accumulation_steps, 'accumulation step')}", rate
    if metrics is not None:
        yield from _trained(metrics)
    yield "Duration", duration(trial.duration_s)
    yield "Node-hours", figure(trial.node_hours)
    if trial.gpu_joules_per_token is not None or trial.energy_note:
        yield "Energy of the GPUs", energy(trial)
    if trial.job_id:
        yield "Job", trial.job_id
    yield "Host", trial.host or "–"
    yield "Log", trial.log_path or "–"
    yield from trial.versions.items()


def _trained(metrics: TrialMetrics) -> Iterator[Fact]:
    if metrics.loss is not None:
        yield "Loss", figure(metrics.loss)
    if metrics.routing:
        yield "Routing", metrics.routing
    if metrics.trainer_parameters is not None and metrics.model_parameters is not None:
        counts = f"{count(metrics.trainer_parameters)} by the trainer's count"
        warning = "; it trains another model" if another_model(metrics) else ""
        yield "Parameters", f"{counts}, {count(metrics.model_parameters)} requested{warning}"


def stands_for(trial: Trial) -> str:
    """Return what a smaller run stands for; empty for a full trial."""
    if not trial.stands_for_nodes:
        return ""
    layers = f"{trial.num_layers} layers, " if trial.num_layers else ""
    return f" ({layers}for {trial.stands_for_nodes} nodes)"
