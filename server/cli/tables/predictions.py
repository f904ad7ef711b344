"""Answers of the cost model as text: predictions, spaces, scaling and models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.schemas.models import ModelNeeds
from autotune.schemas.plans import CampaignPlan, PlannedStrategy
from autotune.schemas.predictions import SAFE_TO_FIT, LayoutChange, Prediction
from autotune.schemas.scaling import ScalingSeries
from autotune.words.plans import campaign_sentence
from autotune.words.quantities import (
    figure,
    parameters,
    percent,
    plural,
    probability,
    seconds,
)
from search_spaces.dimensions import BY_NAME, TABLE, setting_text
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from server.cli.options import options_between
from server.cli.tables.elements import (
    NO_VALUE,
    Cell,
    facts,
    grid,
    model_line,
    rests_on,
    table,
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
        ("strategy", answer.strategy.short()),
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
        *(
            ["", changes("what would make it fit", answer.memory_changes, answer.strategy)]
            if answer.memory_changes
            else []
        ),
        *map(_series, answer.scaling),
    )


def changes(title: str, rows: Sequence[LayoutChange], start: Strategy) -> RenderableType:
    """Return changes of a layout, each with the options that make it."""
    return table(
        rows,
        (
            (title, lambda change: change.sentence),
            ("fits", lambda change: probability(change.fit_probability)),
            ("options", lambda change: options_between(start, change.strategy)),
        ),
    )


def _predicted(answer: Prediction) -> list[tuple[str, str]]:
    fits = "fits" if answer.fits else "does not fit"
    utilisation = f", MFU {percent(answer.mfu)}, HFU {percent(answer.hfu)}" if answer.mfu else ""
    iteration = _interval(
        seconds(answer.iteration_time_low_s), seconds(answer.iteration_time_high_s)
    )
    memory = _interval(figure(answer.memory_low_gib), figure(answer.memory_high_gib))
    energy = "unknown: the machine has no figures of its power"
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
        ("rests on", rests_on(answer)),
    ]


def _interval(low: str, high: str) -> str:
    return f"(80 %: {low} to {high})"


def _rates(answer: Prediction) -> str:
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
    found = Table(box=None, pad_edge=False, show_header=False)
    for justify in ("left", "right", "right"):
        found.add_column(justify=justify)
    total = sum(values.values()) or 1.0
    ordered = sorted(values.items(), key=lambda item: -item[1])
    rows = [item for item in ordered[:ROWS_OF_PARTS] if item[1] / total > INVISIBLE]
    rest = [value for _, value in ordered[len(rows) :] if value]
    if sum(rest) / total > INVISIBLE:
        rows.append((plural(len(rest), "other part"), sum(rest)))
    for name, value in rows:
        found.add_row(name, f"{value:.3g}", percent(value / total))
    return Group(Text(title, style="bold"), found)


def rules(plan: CampaignPlan) -> RenderableType:
    """Return the counts of a space, what each rule removes, and the warnings."""
    dimensions = []
    for name, values in plan.dimensions.items():
        more = f", … {values[-1]} ({len(values)} values)" if len(values) > 16 else ""
        dimensions.append((name, ", ".join(map(str, values[:16])) + more))
    batches = plan.global_batch_sizes
    shown = ", ".join(map(str, batches[:10])) + (", …" if len(batches) > 10 else "")
    removed = grid(
        (">points", "rule", "because"),
        [[f"{item.count:,}", item.rule, item.reason] for item in plan.refusals],
        title="excluded layouts and warnings",
    )
    return Group(
        facts(
            [
                ("model", model_line(plan.model)),
                ("machine", plan.machine.name),
                *dimensions,
                ("points", f"{plan.raw:,}"),
                ("legal", f"{plan.legal:,}"),
                ("probably fit", f"{plan.fitting:,}"),
                (
                    "layouts to try",
                    f"{plan.layouts:,}, of {plan.legal_layouts:,} that are legal "
                    "(a trial measures a layout at all values of GAS)",
                ),
                ("global batch sizes", shown or NO_VALUE),
            ]
        ),
        removed,
        *(Text(f"warning: {warning}") for warning in plan.warnings),
    )


def dry_run(plan: CampaignPlan) -> RenderableType:
    """Return what a campaign may try, and its cost."""
    assert plan.cost is not None
    trials = f"{plan.cost.trials:,} trials of about {figure(plan.cost.node_hours_per_trial)}"
    starts = plan.cost.knob_starts
    with_knobs = f", with about {starts} starts to try knobs" if starts else ""
    costs = [
        ("rests on", rests_on(plan)),
        ("budget buys", f"{trials} node-hours each"),
        ("would cost", f"{figure(plan.cost.node_hours)} node-hours{with_knobs}"),
        *([("baseline", plan.baseline_sentence)] if plan.baseline else []),
        *(
            [("few layers" if plan.screening.layers else "on few nodes", plan.screening.reason)]
            if plan.screening
            else []
        ),
    ]
    left_out = (Text(f"left out: {better.sentence}") for better in plan.left_out)
    return Group(rules(plan), facts(costs), *left_out)


def sweep(plan: CampaignPlan) -> RenderableType:
    """Return the counts, what predictions are based on, and the best predicted layouts with the
    baseline.

    Dimensions that differ are columns; the others are shown once.
    """
    rows = [*plan.best, *([plan.baseline] if plan.baseline else [])]
    batches_differ = len({row.global_batch_size for row in rows}) > 1
    columns = [
        name
        for name in dict.fromkeys(rows[0].strategy.dimensions)
        if name in ALWAYS or len({row.strategy.value(name) for row in rows}) > 1
    ]
    common = [
        *([] if batches_differ else [plural(rows[0].global_batch_size, "sample")]),
        *(
            d.short_value(value)
            for d in TABLE
            for value in [rows[0].strategy.value(d.name)]
            if d.name not in columns and not d.is_absent(value)
        ),
    ]
    trials = campaign_sentence(plan, than="row 1")
    return Group(
        facts(
            [
                ("model", model_line(plan.model)),
                ("machine", plan.machine.name),
                (
                    "strategies",
                    f"{plan.legal:,} legal, {plan.fitting:,} of them probably fit, in "
                    f"{plural(plan.layouts, 'layout')}; fastest first; layouts with less than a "
                    f"{100 * SAFE_TO_FIT:.0f} % chance to fit come last; worked out in "
                    f"{seconds(plan.seconds)}",
                ),
                ("rests on", rests_on(plan)),
                *([("a campaign", trials)] if trials else []),
                ("all with", " · ".join(common)),
            ]
        ),
        "",
        _ranked(rows, columns, with_batch=batches_differ, baseline=plan.baseline),
        *([Text(f"*  {plan.baseline_name}")] if plan.baseline else []),
        *([Text(LIKE_WITH_LIKE)] if batches_differ else []),
    )


def _head(name: str) -> str:
    dimension = BY_NAME.get(name)
    if dimension is None:
        return name
    return f"{'>' if dimension.is_counted else ''}{dimension.short}"


def _ranked(
    rows: Sequence[PlannedStrategy],
    columns: Sequence[str],
    *,
    with_batch: bool,
    baseline: PlannedStrategy | None,
) -> Group:
    headings: list[tuple[str, Callable[[PlannedStrategy], Cell]]] = [
        (">#", lambda row: "*" if row is baseline else row.rank),
        *((_head(name), partial(_value, name=name)) for name in columns),
        *([(">batch", _batch)] if with_batch else []),
        (">tokens/s", lambda row: figure(row.tokens_per_s)),
        (
            ">80 % interval",
            lambda row: f"{figure(row.tokens_per_s_low)} to {figure(row.tokens_per_s_high)}",
        ),
        (">iteration", lambda row: seconds(row.iteration_time_s)),
        (">GiB", lambda row: figure(row.memory_gib)),
        (">fits", lambda row: probability(row.fit_probability)),
    ]
    return table(rows, headings)


def _value(row: PlannedStrategy, *, name: str) -> str:
    return setting_text(row.strategy.value(name))


def _batch(row: PlannedStrategy) -> str:
    return f"{row.global_batch_size:,}"


TITLES = {"strong": "strong: the same global batch", "weak": "weak: a batch for each node"}


def _series(series: ScalingSeries) -> RenderableType:
    rows = [
        [
            f"{point.num_nodes:,}",
            f"{point.gpus:,}",
            f"{point.global_batch_size:,}",
            str(point.strategy.gradient_accumulation_steps),
            seconds(point.iteration_time_s),
            figure(point.tokens_per_s),
            f"{100 * point.efficiency:.1f} %",
            f"{100 * point.efficiency_low:.1f} to {100 * point.efficiency_high:.1f} %",
            probability(point.fit_probability),
        ]
        for point in series.points
    ]
    headings = (
        *(">nodes", ">GPUs", ">batch", ">GAS", ">iteration", ">tokens/s", ">efficiency"),
        *(">80 % interval", ">fits"),
    )
    notes = [Text(f"not on {nodes:,}: {reason}") for nodes, reason in series.omitted.items()]
    return Group("", grid(headings, rows, title=TITLES[series.kind]), *notes, Text(series.sentence))


def models(transformers: Sequence[Transformer]) -> Group:
    """Return one row per model."""
    return table(
        transformers,
        (
            ("model", lambda item: item.name),
            (">parameters", lambda item: parameters(item.parameters)),
            (">active", lambda item: parameters(item.active_parameters)),
            (">layers", lambda item: item.num_layers),
            (">hidden", lambda item: item.hidden_size),
            (">heads", lambda item: item.num_attention_heads),
            (">query groups", lambda item: item.num_query_groups),
            (">seq", lambda item: item.seq_length),
        ),
    )


def needs(answer: ModelNeeds) -> RenderableType:
    """Return one model's memory table and the FLOPs of its training."""
    states = (
        ("weights (16-bit and fp32 copy)", answer.parameters_gb),
        ("gradients", answer.gradients_gb),
        ("optimizer states", answer.optimizer_gb),
        ("all", answer.memory_gb),
    )
    memory = grid(
        ("memory of the states", ">bytes per parameter", ">GB"),
        [[name, f"{1e9 * gb / answer.parameters:.0f}", figure(gb)] for name, gb in states],
    )
    assumed = " (assumed: 20 per parameter; --tokens changes it)" if answer.assumed else ""
    routed = answer.active_parameters < answer.parameters
    of_active = ", N active parameters" if routed else ""
    training = facts(
        [
            ("tokens", f"{parameters(answer.tokens)}{assumed}"),
            ("6 N per token", f"{answer.flops_6n:.3g} FLOPs{of_active}"),
            ("model FLOPs", f"{answer.model_flops:.3g} FLOPs, attention counted, no recomputation"),
        ],
        title="a training",
    )
    counts = "GB are 10^9 bytes of one replica, before ZeRO shards them; activations come on top."
    return Group(Text(model_line(answer.model)), memory, Text(counts, style="dim"), training)
