"""Predictions and counts as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.plan_sentences import campaign_sentence
from autotune.schemas.predictions import DryRun, Prediction, SpaceReport, Sweep, SweepRow
from search_spaces.dimensions import BY_NAME, TABLE, setting_text
from server.cli.dimensions import options_between
from server.cli.tables.elements import (
    NO_VALUE,
    facts,
    figure,
    headed,
    model_line,
    percent,
    plural,
    probability,
    rests_on,
    seconds,
    strategy_line,
    with_unit,
)

ROWS_OF_PARTS = 8
INVISIBLE = 0.0005
"""Shares below this would be shown as 0.0 %."""

ALWAYS = tuple(d.name for d in TABLE if d.is_searched and not d.values and d.part != "nodes")
"""Dimensions that have a column even if all rows agree."""

LIKE_WITH_LIKE = (
    "note: the global batch size varies, which affects convergence: fix it with --global-batch "
    "to compare layouts at the same one"
)


def prediction(answer: Prediction) -> RenderableType:
    """Return whether a strategy is legal and fits, and the parts of its predicted time and
    memory."""
    reasons = [
        Text(f"{'refused' if r.severity == 'refuse' else 'warning'}: {r.reason} ({r.rule})")
        for r in answer.reasons
    ]
    head = [
        ("model", model_line(answer.model)),
        ("machine", answer.machine.name),
        ("strategy", strategy_line(answer.strategy)),
    ]
    if not answer.legal:
        return Group(facts([*head, ("result", "not legal")]), *reasons)
    return Group(
        facts(head + _predicted(answer)),
        *reasons,
        "",
        Columns(
            [
                parts(answer.memory_parts_gib, title="memory of the fullest GPU, GiB"),
                parts(answer.time_parts_s, title="time of one iteration, s"),
            ],
            padding=(0, 6),
        ),
        *([Text(f"pipeline_bubble: {answer.time_note}")] if answer.time_note else []),
        *(["", _memory_changes(answer)] if answer.memory_changes else []),
    )


def _memory_changes(answer: Prediction) -> RenderableType:
    """Return the changes that would make it fit, each with its options."""
    table = headed("what would make it fit", "options")
    for change in answer.memory_changes:
        options = options_between(answer.strategy, change.strategy)
        table.add_row(Text(change.sentence), Text(options))
    return table


def _predicted(answer: Prediction) -> list[tuple[str, str]]:
    fits = "fits" if answer.fits else "does not fit"
    utilisation = f", MFU {percent(answer.mfu)}, HFU {percent(answer.hfu)}" if answer.mfu else ""
    iteration = _interval(
        seconds(answer.iteration_time_low_s), seconds(answer.iteration_time_high_s)
    )
    memory = _interval(figure(answer.memory_low_gib), figure(answer.memory_high_gib))
    energy = "not given: the machine's power is not known"
    if answer.joules_per_token is not None:
        sampled = answer.power_trials
        known = f"power of {plural(sampled, 'trial')}" if sampled else "power not calibrated"
        energy = f"{with_unit(answer.joules_per_token, 'J/token')}, hosts included ({known})"
    return [
        (
            "result",
            f"legal, {fits} (predicted); probability of fitting "
            f"{probability(answer.fit_probability)}",
        ),
        ("does it fit", answer.memory_sentence),
        ("data parallel", f"{answer.data_parallel}"),
        ("global batch", f"{answer.global_batch_size} samples"),
        ("iteration", f"{seconds(answer.iteration_time_s)} {iteration}"),
        ("throughput", f"{with_unit(answer.tokens_per_s, 'tokens/s')} {_rates(answer)}"),
        (
            "model FLOPs",
            f"{with_unit(answer.model_tflops_per_gpu, 'TFLOP/s')} per GPU{utilisation}",
        ),
        (
            "memory",
            f"{figure(answer.memory_gib)} of {with_unit(answer.memory_limit_gib, 'GiB')} {memory}",
        ),
        ("energy", energy),
        ("rests on", rests_on(answer.calibration, answer.machine)),
    ]


def _interval(low: str, high: str) -> str:
    return f"(80 %: {low} to {high})"


def _rates(answer: Prediction) -> str:
    """Return the interval of the rate, from that of the time."""
    median, low, high = (
        answer.iteration_time_s,
        answer.iteration_time_low_s,
        answer.iteration_time_high_s,
    )
    if answer.tokens_per_s is None or not (median and low and high):
        return _interval(NO_VALUE, NO_VALUE)
    tokens = answer.tokens_per_s * median
    return _interval(figure(tokens / high), figure(tokens / low))


def parts(values: dict[str, float], *, title: str) -> RenderableType:
    """Return the largest parts of a total with their shares, and the rest combined.

    Parts that would be shown as 0.0 % are left out.
    """
    table = Table(box=None, pad_edge=False, show_header=False)
    for justify in ("left", "right", "right"):
        table.add_column(justify=justify)
    total = sum(values.values()) or 1.0
    ordered = sorted(values.items(), key=lambda item: -item[1])
    rows = [item for item in ordered[:ROWS_OF_PARTS] if item[1] / total > INVISIBLE]
    rest = [value for _, value in ordered[len(rows) :] if value]
    if sum(rest) / total > INVISIBLE:
        rows.append((plural(len(rest), "other part"), sum(rest)))
    for name, value in rows:
        table.add_row(name, f"{value:.3g}", percent(value / total))
    return Group(Text(title, style="bold"), table)


def space(report: SpaceReport) -> RenderableType:
    """Return the counts of a space, what each rule removes, and the warnings."""
    dimensions = []
    for name, values in report.dimensions.items():
        more = f", … {values[-1]} ({len(values)} values)" if len(values) > 16 else ""
        dimensions.append((name, ", ".join(map(str, values[:16])) + more))
    batches = report.global_batch_sizes
    shown = ", ".join(map(str, batches[:10])) + (", …" if len(batches) > 10 else "")
    removed = headed(">points", "rule", "because", title="removed or warned of")
    for item in report.refusals:
        removed.add_row(f"{item.count:,}", item.rule, Text(item.reason))
    return Group(
        facts(
            [
                ("model", model_line(report.model)),
                ("machine", report.machine.name),
                *dimensions,
                ("points", f"{report.raw:,}"),
                ("legal", f"{report.legal:,}"),
                ("predicted to fit", f"{report.fitting:,}"),
                (
                    "layouts to try",
                    f"{report.layouts:,} predicted to fit, of {report.legal_layouts:,} "
                    "(GAS aside: one trial tells of them all)",
                ),
                ("global batch sizes", shown or NO_VALUE),
            ]
        ),
        removed,
        *(Text(f"warning: {warning}") for warning in report.warnings),
    )


def dry_run(answer: DryRun) -> RenderableType:
    """Return what a campaign may try, and its cost."""
    trials = f"{answer.trials_affordable:,} trials of about {figure(answer.node_hours_per_trial)}"
    costs = [
        ("budget buys", f"{trials} node-hours each"),
        ("would cost", f"{figure(answer.node_hours_expected)} node-hours"),
        *([("measured first", answer.baseline.sentence)] if answer.baseline else []),
        *(
            [("few layers" if answer.screening.layers else "on few nodes", answer.screening.reason)]
            if answer.screening
            else []
        ),
    ]
    left_out = (Text(f"left out: {better.sentence}") for better in answer.left_out)
    return Group(space(answer.space), facts(costs), *left_out)


def sweep(answer: Sweep) -> RenderableType:
    """Return the counts, what predictions are based on, and the best predicted strategies.

    Dimensions that differ are columns; the others are shown once.
    """
    rows = answer.rows
    batches_differ = len({row.global_batch_size for row in rows}) > 1
    columns = [
        name
        for name in dict.fromkeys(rows[0].strategy.dimensions)
        if name in ALWAYS or len({row.strategy.value(name) for row in rows}) > 1
    ]
    common = [
        *([] if batches_differ else [plural(rows[0].global_batch_size, "sample")]),
        *(
            d.told(value)
            for d in TABLE
            for value in [rows[0].strategy.value(d.name)]
            if d.name not in columns and not d.is_absent(value)
        ),
    ]
    return Group(
        facts(
            [
                ("model", model_line(answer.model)),
                ("machine", answer.machine.name),
                (
                    "strategies",
                    f"{answer.legal:,} legal, {answer.fitting:,} of them probably fit; "
                    f"ranked by predicted tokens/s in {seconds(answer.seconds)}",
                ),
                ("rests on", rests_on(answer.calibration, answer.machine)),
                *(
                    [("a campaign", campaign_sentence(answer.cost, answer.gain))]
                    if answer.cost and answer.gain
                    else []
                ),
                ("all with", " · ".join(common)),
            ]
        ),
        "",
        _ranked(rows, columns, with_batch=batches_differ),
        *([Text(LIKE_WITH_LIKE)] if batches_differ else []),
    )


def _head(dimension: str) -> str:
    said = BY_NAME.get(dimension)
    if said is None:
        return dimension
    return f"{'>' if said.is_counted else ''}{said.short}"


def _ranked(rows: Sequence[SweepRow], columns: Sequence[str], *, with_batch: bool) -> Table:
    table = headed(
        *(
            ">#",
            *(_head(name) for name in columns),
            *([">batch"] if with_batch else []),
        ),
        *(">tokens/s", ">80 % interval", ">iteration", ">GiB", ">fits"),
    )
    for row in rows:
        table.add_row(
            str(row.rank),
            *(setting_text(row.strategy.value(name)) for name in columns),
            *([f"{row.global_batch_size:,}"] if with_batch else []),
            figure(row.tokens_per_s),
            f"{figure(row.tokens_per_s_low)} to {figure(row.tokens_per_s_high)}",
            seconds(row.iteration_time_s),
            figure(row.memory_gib),
            probability(row.fit_probability),
        )
    return table
