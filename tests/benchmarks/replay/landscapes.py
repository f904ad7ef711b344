"""Landscapes: strategies of one model on some GPUs of one stack, with what was measured of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from autotune.cost_model.columns import Array, Columns, Rows
from autotune.cost_model.parameters import Parameters
from search_spaces.machine import Machine
from tests.benchmarks.accuracy.configurations import samples, usual_zero
from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.hardware import unknown_gpu
from tests.benchmarks.accuracy.stacks import (
    NOT_DESCRIBED,
    ONE_NODE,
    LeftOut,
    Stack,
    offloaded,
    shaped,
    split_rows,
    stacks_of,
)
from tests.benchmarks.accuracy.tables import PublishedRow

LEAST_STRATEGIES = 12
"""Fewer are no landscape: random search would be through with them at once."""

STRATEGY_COLUMNS = (
    *("tensor_parallel", "pipeline_parallel", "data_parallel", "context_parallel"),
    *("virtual_stages", "micro_batch_size", "gradient_accumulation_steps", "global_batch_size"),
    *("zero_stage", "zero_shard_gpus", "activation_checkpointing", "sequence_parallel"),
    *("flash_attention", "attention_kernel", "precision"),
)
"""Columns that tell strategies apart."""

OUT_OF_MEMORY = "oom"
Key = TypeVar("Key")


@dataclass(frozen=True, kw_only=True, eq=False)
class Measurements:
    """n configurations of one stack, each as it ran or ran out of memory.

    Attributes:
        log_time: shape (n,), logarithm of the seconds of one step, NaN where memory did not
            suffice.
    """

    columns: Columns
    log_time: Array

    def take(self, rows: Rows) -> Measurements:
        if not len(rows):
            return Measurements(columns=Columns.none(), log_time=np.empty(0))
        return Measurements(columns=self.columns.take(rows), log_time=self.log_time[rows])

    def __len__(self) -> int:
        return len(self.columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class Landscape:
    """n strategies of one model, number of GPUs and sequence length.

    Attributes:
        prior: what is generally known of the GPU and the program.
        rows: of the table, one for each strategy: the first where it was measured again.
        measured: of each strategy; the median of its rows.
        log_tokens: shape (n,), logarithm of the tokens of one step on one GPU.
        earlier: of the same stack: what ran of its other models; or, where it has one model alone,
            on other numbers of GPUs or with other sequences.
        earlier_rows: rows of the table for `earlier`.
    """

    name: str
    machine: Machine
    prior: Parameters
    rows: Sequence[PublishedRow]
    measured: Measurements
    log_tokens: Array
    earlier: Measurements
    earlier_rows: Sequence[PublishedRow]

    @property
    def columns(self) -> Columns:
        return self.measured.columns

    @property
    def log_rate(self) -> Array:
        return self.log_tokens - self.measured.log_time

    def __len__(self) -> int:
        return len(self.rows)


def usable(rows: Iterable[PublishedRow], facts: Facts) -> tuple[list[PublishedRow], LeftOut]:
    """Rows that can be replayed, and which were left out for which reason."""
    return split_rows(
        rows,
        {
            "on a GPU whose data sheet is not known": unknown_gpu,
            **NOT_DESCRIBED,
            "neither ended nor out of memory": lambda row: (
                row["status"] not in ("ok", OUT_OF_MEMORY)
            ),
            "no iteration time": lambda row: (
                row["status"] == "ok" and not row.known("iteration_time_s")
            ),
            "offload to the host, not covered": offloaded,
            "no shape or layout": lambda row: not shaped(row, facts),
            "put together from the times of one micro-batch": _put_together,
        },
    )


def _put_together(row: PublishedRow) -> bool:
    gpus = row.number("num_gpus")
    return "vtrain" in row["cluster"].casefold() and gpus is not None and gpus <= ONE_NODE


def stacks(rows: Sequence[PublishedRow], facts: Facts) -> list[Stack]:
    """Of one cluster, framework and GPU as it is called: one with half the memory is another."""
    by_gpu = _grouped(rows, [row["gpu"] for row in rows])
    return [
        stack
        for members in by_gpu.values()
        for stack in stacks_of(members, facts, zero_stage=usual_zero)
    ]


def landscapes(stack: Stack) -> list[Landscape]:
    """All of a stack's with enough strategies, of which at least one ran."""
    models = [row["model"] for row in stack.rows]
    gpus, lengths = (_whole(stack.columns, name) for name in ("world_size", "seq_length"))
    questions = _grouped(range(len(stack)), list(zip(models, gpus, lengths, strict=True)))
    results = []
    for (model, world_size, length), numbers in questions.items():
        strategies = list(_grouped(numbers, [_strategy(stack.rows[n]) for n in numbers]).values())
        ran = any(stack.rows[number]["status"] == "ok" for number in numbers)
        if len(strategies) < LEAST_STRATEGIES or not ran:
            continue
        others = [number for number, name in enumerate(models) if name != model]
        outside = sorted(set(range(len(stack))) - set(numbers))
        earlier = others if len(set(models)) > 1 else outside
        parts = (stack.cluster, stack.framework, stack.rows[0]["gpu"], model)
        results.append(
            _landscape(
                stack,
                strategies,
                earlier=np.array(earlier, dtype=np.int64),
                name=" / ".join((*parts, f"{world_size} GPUs", f"{length} tokens")),
            )
        )
    return results


def _landscape(
    stack: Stack, strategies: Sequence[Sequence[int]], *, earlier: Rows, name: str
) -> Landscape:
    log_time = _log_times(stack.rows)
    log_tokens = _log_tokens(stack)
    first = np.array([numbers[0] for numbers in strategies])
    median = np.array([_median(log_time[list(numbers)]) for numbers in strategies])
    whole = Measurements(columns=stack.columns, log_time=log_time)
    return Landscape(
        name=name,
        machine=stack.machine,
        prior=stack.prior,
        rows=[stack.rows[number] for number in first],
        measured=Measurements(columns=stack.columns.take(first), log_time=median),
        log_tokens=log_tokens[first],
        earlier=whole.take(earlier),
        earlier_rows=[stack.rows[number] for number in earlier],
    )


def _log_times(rows: Sequence[PublishedRow]) -> Array:
    return np.array(
        [
            np.log(row.figures["iteration_time_s"]) if row["status"] == "ok" else np.nan
            for row in rows
        ]
    )


def _log_tokens(stack: Stack) -> Array:
    batch = np.log([samples(row) for row in stack.rows])
    per_gpu = np.log(stack.columns["seq_length"]) - np.log(stack.columns["world_size"])
    return np.asarray(batch + per_gpu)


def _median(log_times: Array) -> float:
    ran = log_times[np.isfinite(log_times)]
    return float(np.median(ran)) if len(ran) else float("nan")


def _strategy(row: PublishedRow) -> tuple[object, ...]:
    return tuple(row.figures.get(name, row.words.get(name)) for name in STRATEGY_COLUMNS)


def _whole(columns: Columns, name: str) -> list[int]:
    return [int(value) for value in np.broadcast_to(columns[name], len(columns))]


Member = TypeVar("Member")


def _grouped(members: Iterable[Member], keys: Sequence[Key]) -> dict[Key, list[Member]]:
    groups: dict[Key, list[Member]] = defaultdict(list)
    for member, key in zip(members, keys, strict=True):
        groups[key].append(member)
    return groups
