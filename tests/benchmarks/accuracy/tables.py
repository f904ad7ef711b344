"""Tables of measurements: rows of a CSV file, with every figure checked when it is read."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

WORDS = ("cluster", "framework", "gpu", "model", "status")
CHOICES = ("activation_checkpointing", "attention_kernel", "precision")
SIZES = (
    *("num_gpus", "gpus_per_node", "num_layers", "hidden_size", "num_attention_heads"),
    *("num_query_groups", "ffn_hidden_size", "seq_length", "vocab_size", "tensor_parallel"),
    *("pipeline_parallel", "data_parallel", "context_parallel", "virtual_stages"),
    *("micro_batch_size", "global_batch_size"),
)
SWITCHES = ("zero_stage", "sequence_parallel", "flash_attention")
"""Figures that may be 0."""

THROUGHPUT = (
    *WORDS,
    *CHOICES,
    *SIZES,
    *SWITCHES,
    "gated_mlp",
    "gradient_accumulation_steps",
    "zero_shard_gpus",
    "iteration_time_s",
)
"""Columns of a table of iteration times; others are not read."""

MEMORY = (*WORDS, *CHOICES, *SIZES, *SWITCHES, "gpu_memory_gb", "memory_kind", "peak_memory_gb")
"""Columns of a table of peak memory."""

OF_EXPERTS = (
    *("num_experts", "moe_top_k", "moe_ffn_hidden_size", "moe_shared_ffn_hidden_size"),
    *("moe_latent_size", "num_dense_layers", "expert_parallel", "expert_tensor_parallel"),
)
OF_LAYERS = (
    *("num_mamba_layers", "num_attention_layers", "mtp_layers", "head_dim", "kv_lora_rank"),
    *("q_lora_rank", "qk_head_dim", "qk_rope_head_dim", "v_head_dim", "attention_window"),
)
SWITCHES_OF_2026 = (
    "recompute_num_layers",
    "offload",
    "fp8_attention",
    "moe_a2a_overlap",
    "fused_grouped_mlp",
)
HOW_TRAINED = (*SWITCHES_OF_2026, "nvlink_domain")
WORDS_OF_2026 = ("recompute_modules", "routing", "cuda_graph", "dispatcher", "config_id", "release")

OPTIONAL = (*OF_EXPERTS, *OF_LAYERS, *HOW_TRAINED, *WORDS_OF_2026)
"""Columns that are read where a table has them: of models of 2025 and 2026, and of how they are
trained."""

TEXT = {*WORDS, *CHOICES, *WORDS_OF_2026, "memory_kind", "source", "note"}
MAY_BE_ZERO = {
    *SWITCHES,
    "gated_mlp",
    "tied_embeddings",
    *OF_EXPERTS,
    *OF_LAYERS,
    *SWITCHES_OF_2026,
}


class TableError(ValueError):
    """A table that cannot be used, in one line: which file, where in it, and why."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedRow:
    """One measured configuration.

    Attributes:
        place: file and line, for messages.
        words: text columns; "" where a cell is empty.
        figures: numeric columns whose cell is not empty.
    """

    place: str
    words: Mapping[str, str]
    figures: Mapping[str, float]

    def __getitem__(self, name: str) -> str:
        return self.words[name]

    def number(self, name: str) -> float | None:
        """A figure, None where it is not known."""
        return self.figures.get(name)

    def cell(self, name: str) -> str | float | None:
        return self.words.get(name, self.figures.get(name))

    def whole(self, name: str) -> int:
        """A figure that is one; raises TableError where it is not, or not known."""
        value = self.figures.get(name)
        if value is None or value % 1:
            raise TableError(f"{self.place}: {name} is no whole number")
        return int(value)

    def choice(self, name: str, valid: Sequence[str]) -> str:
        """One of these words; raises TableError for another."""
        if self[name] not in valid:
            raise TableError(f"{self.place}: {name}={self[name]!r} (valid: {', '.join(valid)})")
        return self[name]

    def known(self, *names: str) -> bool:
        """Whether all of these figures are."""
        return all(name in self.figures for name in names)

    def without(self, *names: str) -> tuple[object, ...]:
        """All that the row says but for these columns: equal for two rows that agree."""
        words = (item for item in sorted(self.words.items()) if item[0] not in names)
        figures = (item for item in sorted(self.figures.items()) if item[0] not in names)
        return (*words, *figures)


@contextmanager
def _reading(path: Path) -> Iterator[TextIO]:
    """Raises TableError for what cannot be read meanwhile."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield file
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise TableError(f"{path}: is no CSV file in UTF-8 ({error})") from error


def is_of_2026(path: Path) -> bool:
    """Whether a table has the columns of models of 2025 and 2026."""
    with _reading(path) as file:
        return "config_id" in next(csv.reader(file), [])


def read(
    path: Path,
    columns: Sequence[str],
    *,
    text: Collection[str] = TEXT,
    may_be_zero: Collection[str] = MAY_BE_ZERO,
) -> list[PublishedRow]:
    """All rows of a CSV file with a header; a column that it lacks is one of empty cells.

    Args:
        text, may_be_zero: columns of words, and those of figures that may be 0.

    Raises:
        TableError: where the file cannot be read, has none of `columns`, or a cell of a numeric
            column is neither empty nor a number that the column can hold.
    """
    with _reading(path) as file:
        reader = csv.DictReader(file, restval="")
        if not set(columns) & set(reader.fieldnames or ()):
            raise TableError(f"{path}: has none of the columns {', '.join(columns)}")
        stripped = partial(_row, columns=columns, text=text, may_be_zero=may_be_zero)
        return [stripped(f"{path}, line {reader.line_num}", cells) for cells in reader]


def _row(
    place: str,
    cells: Mapping[str, str],
    *,
    columns: Sequence[str],
    text: Collection[str],
    may_be_zero: Collection[str],
) -> PublishedRow:
    if None in cells:  # where csv puts what lies beyond the header
        raise TableError(f"{place}: has more cells than the header")
    stripped = {name: cells.get(name, "").strip() for name in (*columns, *OPTIONAL)}
    return PublishedRow(
        place=place,
        words={name: cell for name, cell in stripped.items() if name in text},
        figures={
            name: _number(place, name, cell, may_be_zero)
            for name, cell in stripped.items()
            if cell and name not in text
        },
    )


def _number(place: str, name: str, cell: str, may_be_zero: Collection[str]) -> float:
    try:
        value = float(cell)
    except ValueError:
        raise TableError(f"{place}: {name}={cell!r} is no number") from None
    least = "0 or more" if name in may_be_zero else "above 0"
    if not math.isfinite(value) or value < 0 or (value == 0 and name not in may_be_zero):
        raise TableError(f"{place}: {name}={cell!r} must be a number {least}")
    return value
