"""What is predicted and counted without a trial, as text for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.schemas import Prediction, Refusal, SpaceReport
from server.cli.figures import NO_VALUE, figure, percent, seconds, with_unit
from server.cli.tables import facts, headed, strategy_line

ROWS_OF_PARTS = 8


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
    table = headed("", ">", ">", title=title)
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
    table = headed(">points", "rule", "because", title="removed or warned of")
    for item in items:
        table.add_row(f"{item.count:,}", item.rule, Text(item.reason))
    return table
