"""Campaigns, trials, recommendations and reports as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.schemas import (
    Campaign,
    Prediction,
    Ranked,
    Recommendation,
    Refusal,
    SpaceReport,
    StrategyShape,
    Trial,
    TrialMetrics,
)
from search_spaces.strategy import Strategy
from server.cli.figures import figure, mark, moment, percent, seconds, tokens, with_unit

NO_VALUE = "–"
ROWS_OF_PARTS = 8


def strategy_line(shape: StrategyShape) -> str:
    """`TP 4 · PP 8 · MBS 2 …`, as everywhere else."""
    return Strategy(**shape.model_dump()).short()


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(title=title, box=None, pad_edge=False, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    return table


def facts(pairs: Iterable[tuple[str, str]], *, title: str | None = None) -> Table:
    """Two columns: what it is, and its value."""
    table = Table(title=title, box=None, pad_edge=False, show_header=False, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, value in pairs:
        table.add_row(Text(name), Text(value))
    return table


def campaigns(items: Sequence[Campaign]) -> Table:
    table = _table(
        ">id", "name", "state", "model", "machine", ">nodes", ">trials", ">failed", ">best", ""
    )
    for item in items:
        table.add_row(
            str(item.id),
            Text(item.name or NO_VALUE),
            item.state,
            Text(item.model.name),
            Text(item.machine.name),
            str(item.request.nodes),
            f"{item.trials}/{item.request.budget.max_trials}",
            str(item.failures),
            with_unit(item.best_objective, "tokens/s"),
            mark(item.simulated),
        )
    return table


def campaign(item: Campaign) -> Table:
    budget = item.request.budget
    pairs = [
        ("campaign", f"{item.id} {item.name}".strip()),
        ("state", f"{item.state}: {item.reason}" if item.reason else item.state),
        ("model", item.model.name),
        ("machine", f"{item.machine.name}, at most {item.request.nodes} nodes"),
        ("evaluator", f"{item.request.evaluator} ({mark(item.simulated)})"),
        (
            "trials",
            f"{item.trials} of {budget.max_trials}, {item.failures} failed, "
            f"{item.confirmations} confirmations, {item.pending} open",
        ),
        ("node-hours", figure(item.node_hours)),
        ("created", moment(item.created_at)),
        ("best so far", with_unit(item.best_objective, "tokens/s")),
    ]
    return facts(pairs)


def trials(items: Sequence[Trial]) -> Table:
    table = _table(
        ">no", "purpose", "state", "strategy", ">s/iteration", ">tokens/s", ">peak GiB", "error"
    )
    for item in items:
        metrics = item.metrics
        table.add_row(
            str(item.number),
            item.purpose,
            item.state,
            strategy_line(item.strategy),
            seconds(metrics.iteration_time_s) if metrics else NO_VALUE,
            figure(metrics.tokens_per_s) if metrics else NO_VALUE,
            figure(metrics.peak_memory_gib) if metrics else NO_VALUE,
            Text(item.error or "", overflow="ellipsis", no_wrap=True),
        )
    return table


def trial(item: Trial) -> Table:
    pairs = [
        ("trial", f"{item.number} of campaign {item.campaign_id} ({item.purpose})"),
        ("state", item.state),
        ("strategy", strategy_line(item.strategy)),
        *(_metrics(item.metrics, simulated=item.simulated) if item.metrics else []),
        ("duration", seconds(item.duration_s)),
        ("host", item.host or NO_VALUE),
        ("log", item.log_path or NO_VALUE),
    ]
    return facts(pairs + ([("error", item.error)] if item.error else []))


def _metrics(metrics: TrialMetrics, *, simulated: bool) -> list[tuple[str, str]]:
    efficiency = f", MFU {percent(metrics.mfu)}, HFU {percent(metrics.hfu)}" if metrics.mfu else ""
    spread = seconds(metrics.iteration_time_spread_s)
    return [
        ("iteration", f"{seconds(metrics.iteration_time_s)} ± {spread}, {mark(simulated)}"),
        (
            "throughput",
            f"{with_unit(metrics.tokens_per_s, 'tokens/s')}, "
            f"{with_unit(metrics.tokens_per_s_per_gpu, 'tokens/s')} per GPU",
        ),
        (
            "model FLOPs",
            f"{with_unit(metrics.model_tflops_per_gpu, 'TFLOP/s')} per GPU{efficiency}",
        ),
        ("global batch", f"{metrics.global_batch_size} samples"),
        ("peak memory", with_unit(metrics.peak_memory_gib, "GiB on the fullest rank")),
    ]


def recommendation(answer: Recommendation) -> RenderableType:
    """The best strategy, what training with it would take, and those behind it."""
    return Group(
        facts(_best(answer)),
        *([_runners_up(answer.runners_up)] if answer.runners_up else []),
        *(Text(f"note: {caveat}") for caveat in answer.caveats),
    )


def recommendation_in_brief(answer: Recommendation) -> Table:
    """The figures that matter, without runners-up and caveats."""
    metrics, training = answer.best.metrics, answer.training
    utilisation = f" · MFU {percent(metrics.mfu)}" if metrics.mfu else ""
    return facts(
        [
            ("best layout", strategy_line(answer.best.strategy)),
            ("throughput", f"{with_unit(metrics.tokens_per_s, 'tokens/s')}{utilisation}"),
            ("iteration", f"{seconds(metrics.iteration_time_s)} ({mark(answer.simulated)})"),
            ("peak memory", with_unit(metrics.peak_memory_gib, "GiB on the fullest rank")),
            (
                "to train",
                f"{tokens(training.tokens)} tokens: {figure(training.days)} days, "
                f"{with_unit(training.node_hours, 'node-hours')}",
            ),
            ("found by", f"{answer.trials} trials, {answer.failures} of them failed"),
        ]
    )


def _best(answer: Recommendation) -> list[tuple[str, str]]:
    training = answer.training
    energy = f", {with_unit(training.energy_mwh, 'MWh')}" if training.energy_mwh else ""
    standing = "provisional" if answer.provisional else "confirmed by another run"
    if not answer.provisional and not answer.best.confirmed:
        standing = "measured once"
    return [
        ("best", strategy_line(answer.best.strategy)),
        *_metrics(answer.best.metrics, simulated=answer.simulated),
        ("standing", standing),
        (
            "to train",
            f"{tokens(training.tokens)} tokens: {figure(training.days)} days, "
            f"{with_unit(training.node_hours, 'node-hours')}{energy}",
        ),
        (
            "found by",
            f"{answer.trials} trials, {answer.failures} failed, "
            f"{with_unit(answer.node_hours, 'node-hours')}",
        ),
        ("files", ", ".join(answer.artefacts)),
    ]


def _runners_up(items: Sequence[Ranked]) -> Table:
    table = _table(">rank", "runners-up", ">tokens/s", ">of the best", ">peak GiB", "")
    for item in items:
        table.add_row(
            str(item.rank),
            strategy_line(item.strategy),
            figure(item.metrics.tokens_per_s),
            percent(item.relative_to_best),
            figure(item.metrics.peak_memory_gib),
            "" if item.significant else "within the spread",
        )
    return table


def prediction(answer: Prediction) -> RenderableType:
    """Legal or not, fits or not, and where time and memory go. All of it predicted."""
    reasons = [
        Text(f"{'refused' if r.severity == 'refuse' else 'warning'}: {r.reason} ({r.rule})")
        for r in answer.reasons
    ]
    head = [
        ("model", answer.model.name),
        ("machine", answer.machine.name),
        ("strategy", strategy_line(answer.strategy)),
    ]
    if not answer.legal:
        return Group(facts([*head, ("verdict", "not legal")]), *reasons)
    return Group(
        facts(head + _predicted(answer)),
        *reasons,
        parts(answer.memory_parts_gib, title="memory of the fullest GPU, GiB"),
        parts(answer.time_parts_s, title="time of one iteration, s"),
    )


def _predicted(answer: Prediction) -> list[tuple[str, str]]:
    fits = "fits" if answer.fits else "does not fit"
    utilisation = f", MFU {percent(answer.mfu)}, HFU {percent(answer.hfu)}" if answer.mfu else ""
    return [
        ("verdict", f"legal, {fits} (predicted)"),
        ("data parallel", f"{answer.data_parallel}"),
        ("global batch", f"{answer.global_batch_size} samples"),
        ("iteration", seconds(answer.iteration_time_s)),
        ("throughput", with_unit(answer.tokens_per_s, "tokens/s")),
        (
            "model FLOPs",
            f"{with_unit(answer.model_tflops_per_gpu, 'TFLOP/s')} per GPU{utilisation}",
        ),
        (
            "memory",
            f"{figure(answer.memory_gib)} of {with_unit(answer.memory_limit_gib, 'GiB')}",
        ),
    ]


def parts(values: dict[str, float], *, title: str) -> Table:
    """The largest parts of a sum, each with its share."""
    table = _table("", ">", ">", title=title)
    total = sum(values.values()) or 1.0
    largest = sorted(values.items(), key=lambda item: -item[1])[:ROWS_OF_PARTS]
    for name, value in largest:
        table.add_row(name, f"{value:.3g}", percent(value / total))
    return table


def space(report: SpaceReport) -> RenderableType:
    """Counts, what each rule removes, and warnings."""
    batches = report.global_batch_sizes
    shown = ", ".join(map(str, batches[:10])) + (", …" if len(batches) > 10 else "")
    return Group(
        facts(
            [
                ("model", report.model.name),
                ("machine", report.machine.name),
                *((name, _values(values)) for name, values in report.dimensions.items()),
                ("points", f"{report.raw:,}"),
                ("legal", f"{report.legal:,}"),
                ("predicted to fit", f"{report.fitting:,}"),
                ("layouts to try", f"{report.layouts:,} (GAS aside: one trial tells of them all)"),
                ("global batch sizes", shown or NO_VALUE),
            ]
        ),
        refusals(report.refusals),
        *(Text(f"warning: {warning}") for warning in report.warnings),
    )


def _values(values: Sequence[object]) -> str:
    shown = ", ".join(map(str, values[:16]))
    return shown + (f", … {values[-1]} ({len(values)} values)" if len(values) > 16 else "")


def refusals(items: Sequence[Refusal]) -> Table:
    table = _table(">points", "rule", "because", title="removed or warned of")
    for item in items:
        table.add_row(f"{item.count:,}", item.rule, Text(item.reason))
    return table
