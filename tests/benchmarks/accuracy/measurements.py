"""Tables that the tests write: rows by hand, and rows of a machine that we made up."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from autotune.cost_model import Parameters, estimate, perturbed
from search_spaces.catalog import load_machine, load_model
from search_spaces.choices import DimensionChoice
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.transformer import Transformer
from tests.benchmarks.accuracy.facts import SHAPE
from tests.benchmarks.accuracy.tables import MEMORY, OPTIONAL, THROUGHPUT, PublishedRow, read

Cells = dict[str, object]

PLAIN: Cells = {
    "cluster": "made-a100",
    "framework": "Megatron-LM",
    "gpu": "A100-80GB",
    "model": "GPT 22B",
    "status": "ok",
    "activation_checkpointing": "full",
    "precision": "bf16",
    "num_gpus": 16,
    "gpus_per_node": 8,
    "num_layers": 48,
    "hidden_size": 6144,
    "num_attention_heads": 64,
    "ffn_hidden_size": 24576,
    "seq_length": 2048,
    "vocab_size": 50257,
    "tensor_parallel": 4,
    "pipeline_parallel": 2,
    "data_parallel": 2,
    "micro_batch_size": 2,
    "global_batch_size": 64,
    "gated_mlp": 0,
    "iteration_time_s": 5.0,
    "gpu_memory_gb": 80,
    "memory_kind": "measured",
}
"""A row that says all that matters."""


def written(path: Path, rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> Path:
    """A CSV file with these columns; cells that a row does not have are empty."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def timed(folder: Path, *rows: Mapping[str, object]) -> list[PublishedRow]:
    """PLAIN rows of a table of times with these cells changed, as they are read."""
    changed = [{**PLAIN, **row} for row in rows]
    return read(written(folder / "throughput.csv", changed, (*THROUGHPUT, *OPTIONAL)), THROUGHPUT)


def remembered(folder: Path, *rows: Mapping[str, object]) -> list[PublishedRow]:
    """The same of a table of memory."""
    changed = [{**PLAIN, **row} for row in rows]
    return read(written(folder / "memory.csv", changed, MEMORY), MEMORY)


MACHINE = load_machine("dgx-a100")
TRUTH = perturbed(Parameters.default(MACHINE), seed=3)
LIMIT_GIB = 16.0
CHOICES: dict[str, DimensionChoice] = {
    "activation_checkpointing": ["none", "full"],
    "zero_stage": [0, 1],
}
NOISE = 0.01
NODES = 2
BATCH = 128


def strategies(model: Transformer, *, count: int) -> Lattice:
    """Some of those that train one batch on two nodes."""
    lattice = SearchSpace.build(model, MACHINE, nodes=NODES, choices=CHOICES).lattice()
    same = np.flatnonzero((lattice.global_batch_size == BATCH) & (lattice["num_nodes"] == NODES))
    return lattice.take(np.random.default_rng(0).permutation(same)[:count])


def measured(name: str, *, count: int) -> tuple[list[Cells], list[Cells]]:
    """A catalog model on a machine that differs from what the cost model has in mind: rows of a
    table of times, and of a table of memory where GPUs hold LIMIT_GIB."""
    model, generator = load_model(name), np.random.default_rng(1)
    lattice = strategies(model, count=count)
    real = estimate(model, MACHINE, lattice, parameters=TRUTH)
    noise = np.exp(generator.normal(0.0, NOISE, (2, len(lattice))))
    seconds, gib = real.iteration_time_s * noise[0], real.memory_gib * noise[1]
    rows = [cells(model, lattice, number) for number in range(len(lattice))]
    return (
        [row | {"iteration_time_s": float(s)} for row, s in zip(rows, seconds, strict=True)],
        [row | _peak(float(size)) for row, size in zip(rows, gib, strict=True)],
    )


def _peak(gib: float) -> Cells:
    if gib > LIMIT_GIB:
        return {"gpu_memory_gb": LIMIT_GIB, "status": "oom"}
    return {"gpu_memory_gb": LIMIT_GIB, "peak_memory_gb": gib}


def cells(model: Transformer, lattice: Lattice, number: int) -> Cells:
    """One strategy of a lattice as a row of either table."""
    strategy = lattice.strategy(number)
    shape = {name: getattr(model, name) for name in (*SHAPE, "num_layers", "hidden_size")}
    return {
        "cluster": "made-a100",
        "framework": "Megatron-LM",
        "gpu": "A100-80GB",
        "model": model.name,
        "status": "ok",
        "num_gpus": int(lattice.world_size[number]),
        "gpus_per_node": MACHINE.gpus_per_node,
        "dispatcher": "alltoall",
        "data_parallel": int(lattice.data_parallel[number]),
        "global_batch_size": int(lattice.global_batch_size[number]),
        **{
            name: int(value) if isinstance(value, bool) else value
            for name, value in (shape | strategy.as_dict()).items()
        },
    }
