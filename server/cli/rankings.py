"""A sweep as a table: the dimensions that differ as columns, the others said once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.schemas import StrategyShape, Sweep, SweepRow
from server.cli.figures import figure, plural, probability, rests_on, seconds
from server.cli.tables import facts, headed

COLUMNS: dict[str, str] = {
    "tensor_parallel": ">TP",
    "pipeline_parallel": ">PP",
    "micro_batch_size": ">MBS",
    "gradient_accumulation_steps": ">GAS",
    "num_nodes": ">nodes",
    "zero_stage": ">ZeRO",
    "virtual_stages": ">VP",
    "sequence_parallel": "SP",
    "activation_checkpointing": "ckpt",
    "flash_attention": "flash",
    "precision": "prec",
}
ALWAYS = tuple(COLUMNS)[:4]
"""Dimensions that have a column even where all rows agree."""

LIKE_WITH_LIKE = (
    "note: the global batch size varies, and it decides how a model converges: fix it with "
    "--global-batch to compare like with like"
)

SWITCHES = {True: "on", False: "off"}
COMMON: dict[str, Callable[[StrategyShape], str]] = {
    "num_nodes": lambda s: plural(s.num_nodes, "node"),
    "zero_stage": lambda s: f"ZeRO-{s.zero_stage}",
    "virtual_stages": lambda s: f"VP {s.virtual_stages}",
    "sequence_parallel": lambda s: f"SP {SWITCHES[s.sequence_parallel]}",
    "activation_checkpointing": lambda s: f"{s.activation_checkpointing} ckpt",
    "flash_attention": lambda s: f"flash {SWITCHES[s.flash_attention]}",
    "precision": lambda s: s.precision,
}


def sweep(answer: Sweep) -> RenderableType:
    """Counts, what the figures rest on, and the best strategies. All of it predicted."""
    rows = answer.rows
    columns = [name for name in COLUMNS if name in ALWAYS or _differs(name, rows)]
    return Group(
        facts(
            [
                ("model", answer.model.name),
                ("machine", answer.machine.name),
                (
                    "strategies",
                    f"{answer.legal:,} legal, {answer.fitting:,} of them probably fit; "
                    f"ranked by predicted tokens/s in {seconds(answer.seconds)}",
                ),
                ("rests on", rests_on(answer.calibration, answer.machine)),
                ("all with", _common(rows, columns)),
            ]
        ),
        "",
        _ranked(rows, columns),
        *([Text(LIKE_WITH_LIKE)] if _batches_differ(rows) else []),
    )


def _differs(dimension: str, rows: Sequence[SweepRow]) -> bool:
    return len({getattr(row.strategy, dimension) for row in rows}) > 1


def _common(rows: Sequence[SweepRow], columns: Sequence[str]) -> str:
    said = [say(rows[0].strategy) for name, say in COMMON.items() if name not in columns]
    batch = [] if _batches_differ(rows) else [plural(rows[0].global_batch_size, "sample")]
    return " · ".join(batch + said)


def _batches_differ(rows: Sequence[SweepRow]) -> bool:
    return len({row.global_batch_size for row in rows}) > 1


def _ranked(rows: Sequence[SweepRow], columns: Sequence[str]) -> Table:
    with_batch = _batches_differ(rows)
    table = headed(
        *(">#", *(COLUMNS[name] for name in columns), *([">batch"] if with_batch else [])),
        *(">tokens/s", ">80 % interval", ">iteration", ">GiB", ">fits"),
    )
    for row in rows:
        table.add_row(
            str(row.rank),
            *(_cell(getattr(row.strategy, name)) for name in columns),
            *([f"{row.global_batch_size:,}"] if with_batch else []),
            figure(row.tokens_per_s),
            f"{figure(row.tokens_per_s_low)} to {figure(row.tokens_per_s_high)}",
            seconds(row.iteration_time_s),
            figure(row.memory_gib),
            probability(row.fit_probability),
        )
    return table


def _cell(value: object) -> str:
    return SWITCHES[value] if isinstance(value, bool) else str(value)
