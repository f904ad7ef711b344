"""What is predicted and counted without a trial, as text for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.schemas import BrokenRule, Prediction, SpaceReport
from server.cli.figures import (
    NO_VALUE,
    figure,
    percent,
    plural,
    probability,
    rests_on,
    seconds,
    with_unit,
)
from server.cli.tables import facts, headed, strategy_line

ROWS_OF_PARTS = 8
INVISIBLE = 0.0005
"""A share that is shown as 0.0 %."""


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
        "",
        Columns(
            [
                parts(answer.memory_parts_gib, title="memory of the fullest GPU, GiB"),
                parts(answer.time_parts_s, title="time of one iteration, s"),
            ],
            padding=(0, 6),
        ),
    )


def _predicted(answer: Prediction) -> list[tuple[str, str]]:
    fits = "fits" if answer.fits else "does not fit"
    utilisation = f", MFU {percent(answer.mfu)}, HFU {percent(answer.hfu)}" if answer.mfu else ""
    return [
        (
            "verdict",
            f"legal, {fits} (predicted); probability of fitting "
            f"{probability(answer.fit_probability)}",
        ),
        ("data parallel", f"{answer.data_parallel}"),
        ("global batch", f"{answer.global_batch_size} samples"),
        (
            "iteration",
            f"{seconds(answer.iteration_time_s)} "
            + _interval(
                seconds(answer.iteration_time_low_s), seconds(answer.iteration_time_high_s)
            ),
        ),
        ("throughput", f"{with_unit(answer.tokens_per_s, 'tokens/s')} {_rates(answer)}"),
        (
            "model FLOPs",
            f"{with_unit(answer.model_tflops_per_gpu, 'TFLOP/s')} per GPU{utilisation}",
        ),
        (
            "memory",
            f"{figure(answer.memory_gib)} of {with_unit(answer.memory_limit_gib, 'GiB')} "
            + _interval(figure(answer.memory_low_gib), figure(answer.memory_high_gib)),
        ),
        ("energy", _energy(answer)),
        ("rests on", rests_on(answer.calibration, answer.machine)),
    ]


def _energy(answer: Prediction) -> str:
    if answer.joules_per_token is None:
        return "not given: the machine's power is not known"
    return f"{with_unit(answer.joules_per_token, 'J/token')}, hosts included (not calibrated)"


def _interval(low: str, high: str) -> str:
    return f"(80 %: {low} to {high})"


def _rates(answer: Prediction) -> str:
    """The interval of the rate, from that of the time."""
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
    """The largest parts of a sum, each with its share, and the rest together."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for justify in ("left", "right", "right"):
        table.add_column(justify=justify)
    total = sum(values.values()) or 1.0
    for name, value in _largest(values, total=total):
        table.add_row(name, f"{value:.3g}", percent(value / total))
    return Group(Text(title, style="bold"), table)


def _largest(values: dict[str, float], *, total: float) -> list[tuple[str, float]]:
    """Those that can be seen, largest first; the rest as one where that can be seen."""
    ordered = sorted(values.items(), key=lambda item: -item[1])
    seen = [item for item in ordered[:ROWS_OF_PARTS] if item[1] / total > INVISIBLE]
    rest = [value for _, value in ordered[len(seen) :] if value]
    if sum(rest) / total <= INVISIBLE:
        return seen
    return [*seen, (plural(len(rest), "other part"), sum(rest))]


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


def refusals(items: Sequence[BrokenRule]) -> Table:
    table = headed(">points", "rule", "because", title="removed or warned of")
    for item in items:
        table.add_row(f"{item.count:,}", item.rule, Text(item.reason))
    return table
