"""Models and strategies as columns: one float array for each number that a cost depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_spaces.dimensions import TABLE, Scalar
from search_spaces.lattice import Lattice
from search_spaces.lattice import Mask as Mask
from search_spaces.machine import NARROW_PEAKS
from search_spaces.transformer import MODULES, Transformer

Array = NDArray[np.float64]
Rows = NDArray[np.integer[Any]]

SHAPE = (
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "num_query_groups",
    "head_width",
    "ffn_hidden_size",
    "seq_length",
    "vocab_size",
    "gated_mlp",
    "tied_embeddings",
)
"""Columns of the model, named as in `Transformer`."""

LAYER_KINDS: Mapping[str, float] = {
    "num_experts": 0.0,
    "top_k": 0.0,
    "expert_ffn_hidden_size": 0.0,
    "shared_ffn_hidden_size": 0.0,
    "expert_biases": 0.0,
    "dense_layers": 0.0,
    "interleaved_dense": 0.0,
    "expert_latent_size": 0.0,
    "kv_rank": 0.0,
    "q_rank": 0.0,
    "qk_head_dim": 0.0,
    "rope_head_dim": 0.0,
    "v_head_dim": 0.0,
    "mtp_layers": 0.0,
    "attention_window": 0.0,
    "window_layers": 0.0,
    "mamba_layers": 0.0,
    "attention_layers": 0.0,
    "mamba_inner_size": 0.0,
    "mamba_projected_size": 0.0,
    "mamba_scan_flops": 0.0,
    "single_blocks": 0.0,
    "attention_gate": 0.0,
    "index_heads": 0.0,
    "index_head_dim": 0.0,
    "index_layers": 0.0,
}
"""Columns of models with several kinds of layers, named as in `Experts`, `LatentAttention` and
`Transformer`, with their values for a model of equal dense layers. Linear attention has the columns
of Mamba-2: its projections, state and scan are alike."""

RECOMPUTED = tuple(f"recompute_{module}" for module in MODULES)
"""Columns of modules that may be recomputed, besides the attention's core (selective checkpointing)
and the layer (full)."""


EXPERT_LAYOUT: Mapping[str, float] = {
    "expert_parallel": 1.0,
    "expert_tensor_parallel": 1.0,
    **dict.fromkeys(RECOMPUTED, 0.0),
}
"""Columns of expert parallelism and of recomputed modules, with their default values."""

STRATEGY = tuple(d.name for d in TABLE if not d.columns and d.part != "nodes")
"""Columns taken directly from a lattice."""

CHOICES = tuple(column for d in TABLE for column in d.columns)
"""Indicator columns of the values of unordered dimensions."""

RECOMPUTED_LAYERS = "recomputed_layers"
"""Column, and trainer-defined dimension, of the layers of each virtual stage that full
checkpointing recomputes; 0: all."""

ABSENT: Mapping[str, float] = {
    **LAYER_KINDS,
    **EXPERT_LAYOUT,
    "dropout": 1.0,
    "compiled_loss": 0.0,
    **dict.fromkeys(NARROW_PEAKS, 0.0),
    "overlapped_all_to_all": 0.0,
    "cuda_graphs": 0.0,
    RECOMPUTED_LAYERS: 0.0,
    "waits_for_counts": 1.0,
    "uneven_routing": 1.0,
    "fused_experts": 0.0,
    "flash_1": 0.0,
    "unfused_softmax": 0.0,
    "fused_norm": 1.0,
}
"""Columns that no search space has but published measurements do, with their default values: no
dropout, a compiled loss, matrix products in 8 and 4 bits, an all-to-all overlapped with
computation, CUDA graphs, a dispatcher whose host waits for the counts of tokens (0: it does not),
routing of unknown balance (0: forced, 2: natural), experts whose activation is a kernel of its own
(1: it is fused into their products), FlashAttention 1, softmax without a fused
kernel, and unfused norms."""


REST = ("data_parallel", "zero_shard_gpus", "world_size", *CHOICES)
"""Columns derived from a lattice's."""


@dataclass(frozen=True, eq=False)
class Columns:
    """n strategies, each of its own model if they are stacked.

    Attributes:
        values: name -> array of shape (n,), or () if all rows have the same value. Flags are 0 or
            1. Names: SHAPE, STRATEGY, REST, ABSENT; `world_size` counts GPUs, `zero_shard_gpus`
            those that ZeRO shards over.
        rows: n.
        settings: (trainer-defined dimension, value) -> whether each strategy has it, shape (n,) or
            (); missing if none has. No formula uses them.
    """

    values: Mapping[str, Array]
    rows: int
    settings: Mapping[tuple[str, Scalar], Array] = field(default_factory=dict)

    @classmethod
    def of(cls, transformer: Transformer, lattice: Lattice) -> Columns:
        """Return the columns of one model and all strategies of a lattice.

        The data-parallel size of an illegal strategy may be below 1; it counts as 1.
        """
        replicas = np.maximum(lattice.data_parallel, 1)
        own = {
            **{name: lattice[name] for name in STRATEGY},
            "data_parallel": replicas,
            "zero_shard_gpus": np.maximum(lattice.groups.dense_shards, 1),
            "world_size": lattice.world_size,
            **_choices(lattice),
        }
        if RECOMPUTED_LAYERS in lattice.settings:
            own[RECOMPUTED_LAYERS] = np.array([each or 0 for each in lattice[RECOMPUTED_LAYERS]])
        shape = {name: float(getattr(transformer, name)) for name in SHAPE}
        fixed_or_not = {name: _once_if_fixed(column) for name, column in own.items()}
        return replace(
            cls.filled({**shape, **_kinds(transformer), **fixed_or_not}, rows=len(lattice)),
            settings=_settings(lattice),
        )

    @classmethod
    def filled(cls, known: Mapping[str, object], *, rows: int) -> Columns:
        """Return all columns: those `known`, and the defaults of the others (ABSENT; 0 for
        choices)."""
        whole = {**dict.fromkeys(CHOICES, 0.0), **ABSENT, **known}
        values = {name: np.asarray(value, dtype=np.float64) for name, value in whole.items()}
        return cls(values=values, rows=rows)

    @classmethod
    def stack(cls, parts: Sequence[Columns]) -> Columns:
        """Concatenate the rows of all parts, in order."""
        names = parts[0].values
        values = {
            name: np.concatenate([np.broadcast_to(p.values[name], p.rows) for p in parts])
            for name in names
        }
        settings = {
            (name, value): np.concatenate(
                [np.broadcast_to(p.has_setting(name, value), p.rows) for p in parts]
            )
            for name, value in dict.fromkeys(key for part in parts for key in part.settings)
        }
        return cls(values=values, rows=sum(part.rows for part in parts), settings=settings)

    @classmethod
    def none(cls) -> Columns:
        """Return columns without rows."""
        names = (*SHAPE, *STRATEGY, *REST, *ABSENT)
        return cls(values={name: np.empty(0) for name in names}, rows=0)

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, name: str) -> Array:
        return self.values[name]

    def has_setting(self, name: str, value: Scalar) -> Array:
        """Return whether each strategy has this value of a trainer-defined dimension, shape (n,) or
        ()."""
        return self.settings.get((name, value), _NOT)

    def take(self, rows: Rows | slice) -> Columns:
        """Return the rows at these indices, in that order, or of a slice."""
        chosen = {k: v if v.ndim == 0 else v[rows] for k, v in self.values.items()}
        settings = {k: v if v.ndim == 0 else v[rows] for k, v in self.settings.items()}
        count = len(range(self.rows)[rows]) if isinstance(rows, slice) else len(rows)
        return Columns(values=chosen, rows=count, settings=settings)


_NOT = np.zeros(())


def _kinds(transformer: Transformer) -> dict[str, float]:
    experts, latent = transformer.experts, transformer.latent_attention
    recurrent, sparse = transformer.recurrent, transformer.sparse_attention
    kinds: dict[str, float | None] = {
        "mtp_layers": transformer.mtp_layers,
        "attention_window": transformer.attention_window,
        "window_layers": transformer.window_layers,
        "attention_gate": transformer.attention_gate,
    }
    if experts is not None:
        kinds |= {
            "num_experts": experts.num_experts,
            "top_k": experts.top_k,
            "expert_ffn_hidden_size": experts.ffn_hidden_size,
            "shared_ffn_hidden_size": experts.shared_ffn_hidden_size,
            "expert_biases": experts.biases,
            "dense_layers": experts.dense_layers,
            "interleaved_dense": experts.interleaved,
            "expert_latent_size": experts.latent_size,
        }
    if latent is not None:
        kinds |= vars(latent)
    if sparse is not None:
        kinds |= {
            "attention_window": sparse.top_k,
            "window_layers": transformer.num_layers,
            "index_heads": sparse.index_heads,
            "index_head_dim": sparse.index_head_dim,
            "index_layers": sparse.index_layers,
        }
    if recurrent is not None:
        gates = recurrent.gate_parameters / transformer.hidden_size
        kinds |= {
            "mamba_layers": recurrent.layers,
            "attention_layers": transformer.attention_layers,
            "mamba_inner_size": recurrent.inner_size,
            "mamba_projected_size": recurrent.projected_size + gates,
            "mamba_scan_flops": recurrent.scan_flops,
            "single_blocks": recurrent.single_blocks,
        }
    return {name: float(value) for name, value in kinds.items() if value is not None}


def _settings(lattice: Lattice) -> dict[tuple[str, Scalar], Array]:
    found: dict[tuple[str, Scalar], Array] = {}
    for name in lattice.settings:
        column = lattice[name]
        for value in dict.fromkeys(each for each in column.tolist() if each is not None):
            found[name, value] = _once_if_fixed((column == value).astype(np.float64))
    return found


def _choices(lattice: Lattice) -> dict[str, Array]:
    """Return the CHOICES columns. A dimension has few values in a lattice, so the search stops once
    all rows are covered."""
    chosen: dict[str, Array] = {}
    for dimension in TABLE:
        if dimension.columns:
            where = _occurring(_once_if_fixed(lattice[dimension.name]), dimension.values)
            for column, values in dimension.columns.items():
                masks = (where[value] for value in values if value in where)
                chosen[column] = reduce(np.add, masks, np.zeros(()))
    return chosen


def _occurring(column: NDArray[Any], values: Sequence[Scalar]) -> dict[Scalar, Mask]:
    where: dict[Scalar, Mask] = {}
    left = column.size
    for value in values:
        if not left:
            break
        found = np.asarray(column == value)
        if count := np.count_nonzero(found):
            where[value] = found
            left -= int(count)
    return where


def _once_if_fixed(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column, with shape () if all rows agree: most spaces fix some dimensions, and what
    follows from these need not be computed per row."""
    if not column.ndim or not len(column) or column[0] != column[-1]:
        return column
    return column[0] if np.all(column == column[0]) else column


def taken(part: Array, rows: Rows) -> Array:
    """Index an array's last axis; return it unchanged if one entry holds for all rows."""
    return part.take(rows, axis=-1) if part.ndim and part.shape[-1] > 1 else part


def distinct(columns: Sequence[Array | Mask], *, rows: int) -> tuple[Rows, Rows]:
    """Return one row for each distinct combination of values.

    Args:
        columns: integers from 0, shape (n,) or () each.

    Returns:
        The first row of each combination, shape (k,), and the index of each row's combination,
        shape (n,).
    """
    key, values = np.zeros(rows, dtype=np.int64), 1
    for column in columns:
        if column.ndim and rows:
            size = int(column.max()) + 1
            key *= size
            key += column.astype(np.int64)
            values *= size
    # 16-bit keys are sorted by radix, much faster.
    short = key.astype(np.min_scalar_type(values))
    _, first, which = np.unique(short, return_index=True, return_inverse=True)
    return first, which
