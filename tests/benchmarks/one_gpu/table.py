"""Trials as lines of a CSV, in the columns of published tables of training measurements."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

from autotune.calibration import Observation
from search_spaces.catalog.amd import InstalledGpu
from search_spaces.catalog.local import machine_of_cpus, machine_of_gpus
from search_spaces.errors import InvalidInput
from search_spaces.layers import Experts
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.benchmarks.accuracy.tables import PublishedRow, TableError, read
from tests.benchmarks.one_gpu.plan import SHAPE

MODEL = (*SHAPE, "gated_mlp", "seq_length", "vocab_size")
EXPERTS = {
    "num_experts": "num_experts",
    "moe_top_k": "top_k",
    "moe_ffn_hidden_size": "ffn_hidden_size",
}
"""Columns and fields of a mixture of experts; empty for a dense model."""
ONE = ("num_gpus", "gpus_per_node", "data_parallel", "context_parallel")
BATCH = ("virtual_stages", "micro_batch_size", "gradient_accumulation_steps")
HOW = (
    "zero_stage",
    "activation_checkpointing",
    "sequence_parallel",
    "flash_attention",
    "precision",
)
COLUMNS = (
    *("cluster", "gpu", "num_gpus", "gpus_per_node", "model", *MODEL, *EXPERTS),
    *("tensor_parallel", "pipeline_parallel", "data_parallel", "context_parallel", *BATCH),
    *("global_batch_size", *HOW, "framework", "status", "iteration_time_s", "peak_memory_gb"),
    *("gpu_joules_per_token", "source"),
    # No published table has these, and what is said of a trial needs them.
    *("gpu_memory_gb", "gpu_idle_watt", "gpu_max_watt", "tied_embeddings", "note"),
)
OF_MACHINE = ("cluster", "gpu", "num_gpus", "gpus_per_node", "gpu_memory_gb", "gpu_max_watt")
"""The same in all rows of a table."""

STATUSES = ("ok", "oom", "timeout", "crashed")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "activation_checkpointing": ("none", "selective", "full"),
    "precision": ("fp32", "bf16", "fp16"),
}


@dataclass(frozen=True, kw_only=True)
class MeasuredTrial:
    """One trial and what came of it.

    Attributes:
        peak_memory_gib: what torch had reserved at most.
        note: why the trial failed, or how its energy was sampled, or why it was not.
    """

    transformer: Transformer
    strategy: Strategy
    status: str
    iteration_time_s: float | None = None
    peak_memory_gib: float | None = None
    gpu_joules_per_token: float | None = None
    framework: str = ""
    source: str = ""
    note: str = ""

    @property
    def observation(self) -> Observation | None:
        """None where the trial says nothing of its strategy: it crashed, or took too long."""
        if self.status not in ("ok", "oom"):
            return None
        return Observation(
            transformer=self.transformer,
            strategy=self.strategy,
            iteration_time_s=self.iteration_time_s,
            peak_memory_gib=self.peak_memory_gib,
            fitted=self.status == "ok",
            gpu_joules_per_token=self.gpu_joules_per_token,
        )


@dataclass(frozen=True, kw_only=True)
class Table:
    machine: Machine
    rows: tuple[MeasuredTrial, ...]


def line(row: MeasuredTrial, machine: Machine) -> str:
    model = row.transformer
    cells: dict[str, object] = {
        **{name: getattr(model, name) for name in (*MODEL, "tied_embeddings")},
        **{column: getattr(model.experts, name, None) for column, name in EXPERTS.items()},
        **row.strategy.as_dict(),
        **{name: getattr(machine, name) for name in ("gpu", "gpu_idle_watt", "gpu_max_watt")},
        **{name: getattr(row, name, None) for name in COLUMNS if hasattr(row, name)},
        **dict.fromkeys(ONE, 1),
        "cluster": machine.name,
        "model": model.name,
        "global_batch_size": row.strategy.global_batch_size(1),
        "peak_memory_gb": row.peak_memory_gib,
        "gpu_memory_gb": machine.memory_gib,
    }
    return _line([_cell(cells[name]) for name in COLUMNS])


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())


def _line(cells: Sequence[str]) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def append(file: Path, text: str) -> None:
    with file.open("ab", buffering=0) as opened:
        opened.write(text.encode())
        os.fsync(opened.fileno())


def opened(file: Path, machine: Machine) -> list[MeasuredTrial]:
    """Return the rows that are there already; add the header to a new file, and cut a last line
    that was not written in full.

    Raises:
        InvalidInput: the file is no table of trials, of another GPU, or cannot be written.
        TableError: one of its rows cannot be read.
    """
    header = _line(COLUMNS).encode()
    try:
        content = file.read_bytes() if file.exists() else b""
        if not (content.startswith(header) or header.startswith(content)):
            reason = "is no table of trials, and nothing is added to it"
            raise InvalidInput("--output", str(file), reason, valid="a new file")
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(file, whole)
        if not whole:
            append(file, header.decode())
    except OSError as error:
        reason = f"cannot be written: {error.strerror}"
        raise InvalidInput("--output", str(file), reason) from None
    if whole <= len(header):
        return []
    table = read_table(file)
    for name in ("gpu", "memory_gib"):
        there, here = getattr(table.machine, name), getattr(machine, name)
        if there != here:
            reason = f"has trials of another machine ({name} {there}; here it is {here})"
            raise InvalidInput("--output", str(file), reason, valid="a new file for each GPU")
    return list(table.rows)


def read_table(file: Path) -> Table:
    """Raises TableError for what is no such table: which row, which column, and why."""
    published = read(file, COLUMNS)
    if not published:
        raise TableError(f"{file}: has no rows: nothing was measured into it yet")
    first = published[0]
    for row in published:
        for name in OF_MACHINE:
            if row.cell(name) != first.cell(name):
                raise TableError(f"{row.place}: another {name} than before: one file, one GPU")
    idle = [watt for row in published if (watt := row.number("gpu_idle_watt"))]
    machine = replace(_machine(first), gpu_idle_watt=min(idle, default=None))
    return Table(machine=machine, rows=tuple(map(_row, published)))


def _machine(row: PublishedRow) -> Machine:
    memory_gib, gpu = row.number("gpu_memory_gb"), row["gpu"]
    if memory_gib is None:
        raise TableError(f"{row.place}: gpu_memory_gb must be known")
    if "CPU process" in gpu:
        found = replace(machine_of_cpus(), gpu=gpu)
    else:
        known = machine_of_gpus([InstalledGpu(gpu, memory_gib, row.number("gpu_max_watt"))])
        found = replace(known, host_watt=0.0)  # it is not in what trials measure
    return replace(found, name=row["cluster"], gpus_per_node=1, max_nodes=1, memory_gib=memory_gib)


def _row(row: PublishedRow) -> MeasuredTrial:
    for name in ONE:
        if row.whole(name) != 1:
            raise TableError(f"{row.place}: {name} must be 1: these are trials of one GPU")
    trial = MeasuredTrial(
        transformer=_transformer(row),
        strategy=_strategy(row),
        status=row.choice("status", STATUSES),
        iteration_time_s=row.number("iteration_time_s"),
        peak_memory_gib=row.number("peak_memory_gb"),
        gpu_joules_per_token=row.number("gpu_joules_per_token"),
        **{name: row[name] for name in ("framework", "source", "note")},
    )
    if trial.status == "ok" and None in (trial.iteration_time_s, trial.peak_memory_gib):
        raise TableError(f"{row.place}: its time or its peak memory is missing")
    return trial


def _transformer(row: PublishedRow) -> Transformer:
    shape: dict[str, Any] = {name: row.whole(name) for name in (*MODEL, "tied_embeddings")}
    switches = {name: bool(shape[name]) for name in ("gated_mlp", "tied_embeddings")}
    experts = None
    if row.number("num_experts") is not None:
        sizes: dict[str, Any] = {name: row.whole(column) for column, name in EXPERTS.items()}
        experts = Experts(**sizes)
    return Transformer(name=row["model"], experts=experts, **shape | switches)


def _strategy(row: PublishedRow) -> Strategy:
    figures = ("tensor_parallel", "pipeline_parallel", *BATCH, "zero_stage")
    named: dict[str, Any] = {
        **{name: row.whole(name) for name in figures},
        **{name: bool(row.whole(name)) for name in ("sequence_parallel", "flash_attention")},
        **{name: row.choice(name, valid) for name, valid in CHOICES.items()},
    }
    return Strategy(num_nodes=1, **named)
