"""Trials and their measurements as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from rich.console import Group
from rich.table import Table
from rich.text import Text

from autotune.schemas.trials import NodePower, Trial, TrialMetrics, TrialPower
from autotune.trained_model import another_model
from server.cli.tables.elements import (
    NO_VALUE,
    facts,
    figure,
    iteration_expected,
    mark,
    percent,
    seconds,
    strategy_line,
    table,
    why_chosen,
    with_unit,
)
from server.wording import energy_origin, power_summary, step_spread

NODES_SHOWN = 16
BARS = "▁▂▃▄▅▆▇█"
BARS_SHOWN = 40


def trials(items: Sequence[Trial]) -> Group:
    """Return one row per trial. Jobs and energy have columns only if there are any."""
    with_jobs = any(item.job_id for item in items)
    with_energy = any(item.gpu_joules_per_token is not None for item in items)
    columns: list[tuple[str, Callable[[Trial], str]]] = [
        (">no", lambda item: str(item.number)),
        ("=purpose", lambda item: item.purpose),
        ("=state", lambda item: item.phase or item.state.value),
        ("·strategy", lambda item: strategy_line(item.strategy) + _stands_for(item)),
        (">s/iteration", _measured(lambda metrics: seconds(metrics.iteration_time_s))),
        (">tokens/s", _measured(lambda metrics: figure(metrics.tokens_per_s))),
        (">peak GiB", _measured(lambda metrics: figure(metrics.peak_memory_gib))),
    ]
    if with_energy:
        columns.append((">GPU J/token", lambda item: figure(item.gpu_joules_per_token)))
    if with_jobs:
        columns.append(("job", lambda item: item.job_id or NO_VALUE))
    columns.append(("…remark", lambda i: i.error or i.phase_reason or another_model(i.metrics)))
    return table(items, columns)


def _measured(cell: Callable[[TrialMetrics], str]) -> Callable[[Trial], str]:
    return lambda item: cell(item.metrics) if item.metrics else NO_VALUE


def choices(items: Sequence[Trial]) -> Group:
    """Return why each trial was chosen, without those for which this is unknown."""
    columns: tuple[tuple[str, Callable[[Trial], str]], ...] = (
        (">no", lambda item: str(item.number)),
        ("why it was chosen", why_chosen),
    )
    return table(filter(why_chosen, items), columns)


def _stands_for(item: Trial) -> str:
    if not item.stands_for_nodes:
        return ""
    layers = f"{item.num_layers} layers, " if item.num_layers else ""
    return f" ({layers}for {item.stands_for_nodes} nodes)"


def trial(item: Trial) -> Table:
    """Return everything known about one trial."""
    energy = item.energy_note or NO_VALUE
    if item.gpu_joules_per_token is not None:
        energy = f"{item.gpu_joules_per_token:.3g} J/token by the GPUs ({item.energy_note})"
    memory = with_unit(item.predicted_memory_gib, "GiB on the fullest rank")
    predicted = f"{iteration_expected(item)} an iteration, {memory}"
    state = ": ".join(filter(None, [item.phase or item.state.value, item.phase_reason]))
    return facts(
        [
            ("trial", f"{item.number} of campaign {item.campaign_id} ({item.purpose})"),
            ("state", state),
            ("strategy", strategy_line(item.strategy) + _stands_for(item)),
            *([("chosen", why)] if (why := why_chosen(item)) else []),
            ("predicted", predicted),
            *(metrics_facts(item.metrics, simulated=item.simulated) if item.metrics else []),
            ("duration", seconds(item.duration_s)),
            ("energy", energy),
            *_parameters(item.metrics),
            *([("routing", item.metrics.routing)] if item.metrics and item.metrics.routing else []),
            ("job", item.job_id or NO_VALUE),
            ("host", item.host or NO_VALUE),
            ("log", item.log_path or NO_VALUE),
            *([("error", item.error)] if item.error else []),
        ]
    )


def power(series: TrialPower) -> Group:
    """Return one line per sampled node: its power over time, as bars and in numbers."""
    highest = max(max(node.watts) for node in series.nodes)
    nodes = table(
        series.nodes[:NODES_SHOWN],
        (
            ("node", lambda node: node.node),
            ("power over time", lambda node: _bars(node, highest)),
            (">min W", lambda node: figure(min(node.watts))),
            (">mean W", lambda node: figure(node.mean_watts)),
            (">max W", lambda node: figure(max(node.watts))),
        ),
    )
    more = len(series.nodes) - NODES_SHOWN
    rest = [Text(f"and {more} more nodes; --json has them all", style="dim")] if more > 0 else []
    return Group(nodes, *rest, Text(power_summary(series)))


def _bars(node: NodePower, highest: float) -> str:
    """Return bars from 0 W up, of the means of equal intervals; a space for an interval without
    points."""
    width_s = (node.at_s[-1] - node.at_s[0]) / BARS_SHOWN or 1.0
    watts: dict[int, list[float]] = {}
    for at_s, each in zip(node.at_s, node.watts, strict=True):
        place = min(BARS_SHOWN - 1, int((at_s - node.at_s[0]) / width_s))
        watts.setdefault(place, []).append(each)
    heights = {place: fmean(each) / (highest or 1.0) for place, each in watts.items()}
    top = len(BARS) - 1
    return "".join(
        BARS[round(top * heights[place])] if place in heights else " "
        for place in range(max(heights) + 1)
    )


def _parameters(metrics: TrialMetrics | None) -> list[tuple[str, str]]:
    """Return the two parameter counts of the model, if the trainer reports its own."""
    if metrics is None or metrics.trainer_parameters is None or metrics.model_parameters is None:
        return []
    told = f"{metrics.trainer_parameters:,} as the trainer counts them"
    warning = "; so it trains another model" if another_model(metrics) else ""
    return [("parameters", f"{told}, {metrics.model_parameters:,} were asked for{warning}")]


def metrics_facts(metrics: TrialMetrics, *, simulated: bool) -> list[tuple[str, str]]:
    efficiency = f", MFU {percent(metrics.mfu)}, HFU {percent(metrics.hfu)}" if metrics.mfu else ""
    return [
        (
            "iteration",
            f"{seconds(metrics.iteration_time_s)} {step_spread(metrics)}, {mark(simulated)}",
        ),
        (
            "throughput",
            f"{with_unit(metrics.tokens_per_s, 'tokens/s')}, "
            f"{with_unit(metrics.tokens_per_s_per_gpu, 'tokens/s')} per GPU",
        ),
        ("for a token", _for_a_token(metrics)),
        (
            "model FLOPs",
            f"{with_unit(metrics.model_tflops_per_gpu, 'TFLOP/s')} per GPU{efficiency}",
        ),
        ("global batch", f"{metrics.global_batch_size} samples"),
        ("peak memory", with_unit(metrics.peak_memory_gib, "GiB on the fullest rank")),
    ]


def _for_a_token(metrics: TrialMetrics) -> str:
    """Return the reciprocals of the two rates per cost of a token."""
    million = with_unit(1e6 / metrics.tokens_per_node_hour, "node-hours a million tokens")
    if metrics.tokens_per_joule is None:
        return million
    how = energy_origin(sampled=metrics.energy_sampled)
    joules = with_unit(1 / metrics.tokens_per_joule, "J a token")
    return f"{million}; {joules}, hosts included ({how})"
