"""Trials as lines of a CSV, in the columns of published tables of training measurements."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.calibration import Observation
from search_spaces.catalog.amd import InstalledGpu
from search_spaces.catalog.local import machine_of_cpus, machine_of_gpus
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

MODEL = (
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "num_query_groups",
    "ffn_hidden_size",
    "gated_mlp",
    "seq_length",
    "vocab_size",
)
BATCH = (
    "virtual_stages",
    "micro_batch_size",
    "gradient_accumulation_steps",
)
HOW = (
    "zero_stage",
    "activation_checkpointing",
    "sequence_parallel",
    "flash_attention",
    "precision",
)
MEASURED = ("iteration_time_s", "peak_memory_gb", "gpu_joules_per_token")
COLUMNS = (
    *("cluster", "gpu", "num_gpus", "gpus_per_node", "model", *MODEL),
    *("tensor_parallel", "pipeline_parallel", "data_parallel", "context_parallel", *BATCH),
    *("global_batch_size", *HOW, "framework", "status", *MEASURED, "source"),
    # No published table has these, and what is said of a trial needs them.
    *("gpu_memory_gb", "gpu_idle_watt", "gpu_max_watt", "tied_embeddings", "note"),
)

OF_MACHINE = ("cluster", "gpu", "num_gpus", "gpus_per_node", "gpu_memory_gb", "gpu_max_watt")
"""The same in all rows of a table."""

STATUSES = ("ok", "oom", "timeout", "crashed")
SWITCH = {"0": False, "1": True}
CHOICES: Mapping[str, tuple[str, ...]] = {
    "activation_checkpointing": ("none", "selective", "full"),
    "precision": ("fp32", "bf16", "fp16"),
    "status": STATUSES,
}


@dataclass(frozen=True, kw_only=True)
class MeasuredTrial:
    """One trial and what came of it.

    Attributes:
        peak_memory_gib: what torch had reserved at most.
        note: why the trial failed, or how its energy was told, or why it was not.
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
    def key(self) -> tuple[Transformer, Strategy]:
        return self.transformer, self.strategy

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
    """All rows of a file, and the one GPU that they were measured on."""

    machine: Machine
    rows: tuple[MeasuredTrial, ...]


def header() -> str:
    return _line(COLUMNS)


def line(row: MeasuredTrial, machine: Machine) -> str:
    """With its line end."""
    model, strategy = row.transformer, row.strategy
    cells = {
        **{name: getattr(model, name) for name in (*MODEL, "tied_embeddings")},
        **strategy.as_dict(),
        "cluster": machine.name,
        "gpu": machine.gpu,
        "num_gpus": 1,
        "gpus_per_node": 1,
        "model": model.name,
        "data_parallel": 1,
        "context_parallel": 1,
        "global_batch_size": strategy.global_batch_size(1),
        "framework": row.framework,
        "status": row.status,
        "iteration_time_s": row.iteration_time_s,
        "peak_memory_gb": row.peak_memory_gib,
        "gpu_joules_per_token": row.gpu_joules_per_token,
        "source": row.source,
        "gpu_memory_gb": machine.memory_gib,
        "gpu_idle_watt": machine.gpu_idle_watt,
        "gpu_max_watt": machine.gpu_max_watt,
        "note": row.note,
    }
    return _line([_cell(cells[name]) for name in COLUMNS])


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())


def _line(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def append(file: Path, text: str) -> None:
    """In one write, and on the disk when this returns; raises OSError."""
    with file.open("ab", buffering=0) as opened:
        opened.write(text.encode())
        os.fsync(opened.fileno())


def begin(file: Path) -> None:
    """Make it a table that rows can be added to: with a header, and no last line that was cut.

    Raises:
        InvalidInput: it is something else, which is left as it is.
        OSError: it cannot be written.
    """
    content, first = file.read_bytes() if file.exists() else b"", header().encode()
    if not (content.startswith(first) or first.startswith(content)):
        reason = "is no table of trials, and nothing is added to it"
        raise InvalidInput("--output", str(file), reason, valid="a new file")
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with file.open("r+b") as opened:
            opened.truncate(whole)
    if not whole:
        append(file, header())


# --- reading ---


def read_table(file: Path) -> Table:
    """Raises InvalidInput, which names the row and the column, for what is no such table."""
    lines = list(_records(file))
    if not lines:
        raise InvalidInput("file", str(file), "has no rows: nothing was measured into it yet")
    for number, cells in lines[1:]:
        for name in OF_MACHINE:
            if cells[name] != lines[0][1][name]:
                reason = f"differs from the first row's {lines[0][1][name]!r}: one file, one GPU"
                raise InvalidInput(f"row {number}, {name}", cells[name], reason)
    first = _Cells(*lines[0])
    rows = tuple(_row(_Cells(number, cells)) for number, cells in lines)
    idle = [watt for n, c in lines if (watt := _Cells(n, c).number("gpu_idle_watt"))]
    machine = replace(_machine(first), gpu_idle_watt=min(idle, default=None))
    return Table(machine=machine, rows=rows)


def _records(file: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """(row number from 1, cells by column)."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no text"
        raise InvalidInput("file", str(file), f"cannot be read: {reason}") from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        named = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        raise InvalidInput(
            "file", str(file), f"is no table of trials: it lacks the columns {named}"
        )
    for number, cells in enumerate(reader, 1):
        if None in cells or None in cells.values():
            raise InvalidInput(f"row {number}", str(file), "has too few or too many cells")
        yield number, cells


@dataclass(frozen=True)
class _Cells:
    """One row as text; what is not what it must be is refused with its row and column."""

    number_of_row: int
    text: Mapping[str, str]

    def number(self, name: str) -> float | None:
        """Above 0; None where the cell is empty."""
        if not self.text[name]:
            return None
        try:
            value = float(self.text[name])
        except ValueError:
            value = 0.0
        if not 0.0 < value < float("inf"):
            raise self.refusal(name, "is no positive number")
        return value

    def whole(self, name: str, *, least: int = 1) -> int:
        text = self.text[name]
        if not text.isascii() or not text.isdigit() or len(text) > 12 or int(text) < least:
            raise self.refusal(name, f"is no whole number from {least} on")
        return int(text)

    def switch(self, name: str) -> bool:
        if self.text[name] not in SWITCH:
            raise self.refusal(name, "is neither 0 nor 1")
        return SWITCH[self.text[name]]

    def choice(self, name: str) -> str:
        if self.text[name] not in CHOICES[name]:
            raise self.refusal(name, "is unknown", valid=", ".join(CHOICES[name]))
        return self.text[name]

    def refusal(self, name: str, reason: str, *, valid: str = "") -> InvalidInput:
        where = f"row {self.number_of_row}, {name}"
        return InvalidInput(where, self.text[name], reason, valid=valid)


def _machine(cells: _Cells) -> Machine:
    """By the kind of GPU that its name tells; a host's power is not in what trials measure."""
    memory_gib, gpu = cells.number("gpu_memory_gb"), cells.text["gpu"]
    if memory_gib is None:
        raise cells.refusal("gpu_memory_gb", "must be known")
    if "CPU process" in gpu:
        found = replace(machine_of_cpus(), gpu=gpu)
    else:
        known = machine_of_gpus([InstalledGpu(gpu, memory_gib, cells.number("gpu_max_watt"))])
        found = replace(known, host_watt=0.0)
    name = cells.text["cluster"]
    return replace(found, name=name, gpus_per_node=1, max_nodes=1, memory_gib=memory_gib)


def _row(cells: _Cells) -> MeasuredTrial:
    for name in ("num_gpus", "gpus_per_node", "data_parallel", "context_parallel"):
        if cells.whole(name) != 1:
            raise cells.refusal(name, "must be 1: these are trials of one GPU")
    row = MeasuredTrial(
        transformer=_transformer(cells),
        strategy=_strategy(cells),
        status=cells.choice("status"),
        iteration_time_s=cells.number("iteration_time_s"),
        peak_memory_gib=cells.number("peak_memory_gb"),
        gpu_joules_per_token=cells.number("gpu_joules_per_token"),
        **{name: cells.text[name] for name in ("framework", "source", "note")},
    )
    if row.status == "ok" and None in (row.iteration_time_s, row.peak_memory_gib):
        raise cells.refusal("status", "but its time or its peak memory is missing")
    return row


def _transformer(cells: _Cells) -> Transformer:
    switches = ("gated_mlp", "tied_embeddings")
    shape: dict[str, Any] = {name: cells.whole(name) for name in MODEL if name not in switches}
    return Transformer(
        name=cells.text["model"], **shape, **{name: cells.switch(name) for name in switches}
    )


def _strategy(cells: _Cells) -> Strategy:
    named: dict[str, Any] = {
        **{name: cells.whole(name) for name in ("tensor_parallel", "pipeline_parallel", *BATCH)},
        **{name: cells.choice(name) for name in ("activation_checkpointing", "precision")},
    }
    return Strategy(
        zero_stage=cells.whole("zero_stage", least=0),
        num_nodes=1,
        sequence_parallel=cells.switch("sequence_parallel"),
        flash_attention=cells.switch("flash_attention"),
        **named,
    )
