"""Peaks of models of 2026: golden values of Megatron-LM's functional tests.

A row is one configuration on one kind of GPU, and its peak that of torch's allocator on the last
rank, so the last stage's, with neither the device's context nor communicators.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autotune.calibration.mixture import Mixture
from autotune.calibration.quantity import Quantity, memory_gib
from autotune.calibration.sample import Sample
from autotune.cost_model.columns import Array, Columns, Mask
from autotune.cost_model.memory import last_stage_parts
from autotune.cost_model.parameters import Parameters
from autotune.cost_model.strategies import GIB, Strategies, total
from search_spaces.catalog import load_machine
from search_spaces.program import USUAL_STATES, StateWidths
from search_spaces.transformer import MODULES
from tests.benchmarks.accuracy import tables
from tests.benchmarks.accuracy.configurations import OF_KINDS, usual_zero
from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.hardware import unknown_gpu
from tests.benchmarks.accuracy.stacks import (
    LeftOut,
    Stack,
    shaped,
    split_rows,
    stacks_of,
    tuning_of,
)
from tests.benchmarks.accuracy.tables import OF_EXPERTS, TEXT, PublishedRow, read

PEAK = "mem_max_early_bytes"
"""The column of the peak."""

RESIDENT = "mem_allocated_bytes"
"""The column of what is left after a step: weights, gradients and optimizer states."""

WORDS = (
    *("config_id", "gpu", "precision", "attention_backend", "transformer_impl"),
    *("recompute_granularity", "recompute_modules", "world_source", "excluded"),
)
SIZES = (
    *("num_layers", "hidden_size", "num_attention_heads", "num_query_groups", "head_dim"),
    *("ffn_hidden_size", "seq_length", "vocab_size"),
)
EXPERTS = tuple(name for name in OF_EXPERTS if name in OF_KINDS and name != "moe_latent_size")
MODEL = (*SIZES, "gated_mlp", "tied_embeddings", *EXPERTS, "mtp_layers")
LATENT = ("kv_lora_rank", "q_lora_rank", "qk_head_dim", "qk_rope_head_dim", "v_head_dim")
OF_COST_MODEL = {**OF_KINDS, "head_dim": "head_width"}
"""What the cost model calls columns otherwise."""

LAYOUT = (
    *("tensor_parallel", "pipeline_parallel", "virtual_stages", "context_parallel"),
    *("expert_parallel", "expert_tensor_parallel", "sequence_parallel", "micro_batch_size"),
)
OTHERS = (
    *("world_size", "global_batch_size", "distributed_optimizer", "hidden_dropout"),
    *("cross_entropy_fusion", "grad_reduce_bf16", "mla", RESIDENT, PEAK),
)
GOLDEN = (*WORDS, *MODEL, *LATENT, *LAYOUT, *OTHERS)
"""Columns of such a table; others are not read."""

NEEDED = (
    *SIZES,
    *LAYOUT,
    *(name for name in OTHERS if name not in {"grad_reduce_bf16", PEAK}),
)
"""Columns of figures without which a row says too little."""

MAY_BE_ZERO = {*tables.MAY_BE_ZERO, *MODEL, *LATENT, *LAYOUT, *OTHERS}

RECIPE = "recipe"
"""The source of a world that is not a guess."""

REPLICAS = ("world_size", "data_parallel", "zero_shard_gpus")
"""Columns that grow with the world."""

TIMES_THE_WORLD = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Worlds that a guess may stand for."""

ALLOCATOR = {"context_gib": 0.125, "communicator_gib": 0.0, "fragmentation": 0.0}
"""Constants of what torch's allocator gave out: workspaces of libraries, not the context."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GoldenPeaks:
    """n configurations, each on one kind of GPU, with the median of its peaks.

    Attributes:
        gib: shape (n,).
        rows: the first row of each.
    """

    columns: Columns
    gib: Array
    rows: Sequence[PublishedRow]
    left_out: LeftOut

    @classmethod
    def of(cls, rows: Sequence[PublishedRow]) -> GoldenPeaks:
        measured: dict[tuple[str, str], list[PublishedRow]] = defaultdict(list)
        left_out: LeftOut = {}
        for row in rows:
            lacks = next((f"no {name}" for name in NEEDED if not row.known(name)), "")
            if reason := row["excluded"] or ("" if row.known(PEAK) else "no peak") or lacks:
                left_out[row] = reason
            else:
                measured[row["config_id"], row["gpu"]].append(row)
        values = [_values(same[0]) for same in measured.values()]
        if not values:
            return cls(columns=Columns.none(), gib=np.empty(0), rows=[], left_out=left_out)
        named = {name: np.array([each[name] for each in values]) for name in values[0]}
        guessed = np.array([same[0]["world_source"] != RECIPE for same in measured.values()])
        resident = _medians(list(measured.values()), RESIDENT)
        return cls(
            columns=_in_their_world(Columns.filled(named, rows=len(values)), resident, guessed),
            gib=_medians(list(measured.values()), PEAK),
            rows=[same[0] for same in measured.values()],
            left_out=left_out,
        )


def _medians(measured: Sequence[Sequence[PublishedRow]], name: str) -> Array:
    """Return the median of each group of rows, GiB."""
    return np.array([np.median([row.figures[name] for row in same]) for same in measured]) / GIB


def _in_their_world(columns: Columns, resident: Array, guessed: Mask) -> Columns:
    """Return the columns with more replicas where the world is a guess and the states that are
    resident say so: those of a test that no recipe describes, which then say nothing of states."""
    known = quantity()
    larger = [
        replace(
            columns,
            values={
                **columns.values,
                **{name: columns[name] * np.where(guessed, times, 1.0) for name in REPLICAS},
            },
        )
        for times in TIMES_THE_WORLD
    ]
    errors = [
        np.abs(np.log(_states_gib(Strategies(each, known.machine, known.prior)) / resident))
        for each in larger
    ]
    nearest = np.argmin(errors, axis=0)
    return Columns.stack([larger[which].take(np.array([row])) for row, which in enumerate(nearest)])


def _states_gib(strategies: Strategies) -> Array:
    parts = last_stage_parts(strategies)
    names = ("parameters", "gradients", "optimizer", "experts")
    return total({name: parts[name] for name in names}) / GIB


def _values(row: PublishedRow) -> dict[str, float]:
    """Return the cost model's columns of a row."""
    figures = row.figures
    layout = {name: figures[name] for name in LAYOUT}
    cut = layout["tensor_parallel"] * layout["pipeline_parallel"]
    replicas = max(1.0, figures["world_size"] // (cut * layout["context_parallel"]))
    steps = figures["global_batch_size"] // (replicas * layout["micro_batch_size"])
    modules = row["recompute_modules"].split() or ["core_attn"]
    selective = row["recompute_granularity"] == "selective"
    # Megatron's own layers ("local") have no flash attention; Transformer Engine's have.
    unfused = row["attention_backend"] == "unfused" or row["transformer_impl"] == "local"
    return {
        **{OF_COST_MODEL.get(name, name): figures.get(name, 0.0) for name in MODEL},
        **{OF_KINDS.get(name, name): figures.get(name, 0.0) * figures["mla"] for name in LATENT},
        **layout,
        "world_size": figures["world_size"],
        "data_parallel": replicas,
        "zero_shard_gpus": replicas * layout["context_parallel"],
        "zero_stage": figures["distributed_optimizer"],
        "gradient_accumulation_steps": max(1.0, steps),
        "dropout": float(figures["hidden_dropout"] > 0),
        "compiled_loss": figures["cross_entropy_fusion"],
        "flash_attention": float(not unfused),
        "full_checkpointing": float(row["recompute_granularity"] == "full"),
        "selective_checkpointing": float(selective and "core_attn" in modules),
        **{f"recompute_{name}": float(selective and name in modules) for name in MODULES},
        "fp8": float(row["precision"] == "fp8"),
        "fp32": float(row["precision"] == "fp32"),
        "fp16": float(row["precision"] == "fp16"),
    }


class LastRank(Quantity):
    """Memory of the last rank of a program of NVIDIA's, as torch's allocator counts it."""

    def log_value(self, z: Array, columns: Columns, labelled: Array) -> Array:  # noqa: ARG002
        strategies = Strategies(columns, self.machine, self.parameters(z))
        return np.log(total(last_stage_parts(strategies)) / GIB)


def quantity() -> LastRank:
    """Return it with what is known before any label; no figure of the machine matters to it."""
    machine = load_machine("dgx-a100")
    widths = StateWidths(gradient_bytes=4.0)  # Megatron-LM's, unless told to reduce in 16 bits
    prior = replace(Parameters.default(machine, "vendor", widths), **ALLOCATOR)
    return LastRank(
        machine=machine, prior=prior, of_memory=True, declared=frozenset({"gradient_bytes"})
    )


def peak_error(judged: GoldenPeaks, learned_from: GoldenPeaks | None = None) -> float | None:
    """Return the mean absolute error of peaks; None where there are none.

    Args:
        learned_from: peaks that constants are calibrated on; none for a zero-shot prediction.
    """
    if not len(judged.gib):
        return None
    known = learned_from or GoldenPeaks.of([])
    sample = Sample(
        columns=known.columns, log_value=np.log(known.gib), side=np.zeros(len(known.gib))
    )
    mean = Mixture.of(quantity(), sample).predict(judged.columns)[0]
    return float(np.mean(np.abs(np.exp(mean) / judged.gib - 1.0)))


def golden(paths: Sequence[Path]) -> list[PublishedRow]:
    """Return the rows of all tables of golden values."""
    return [
        row
        for path in paths
        for row in read(path, GOLDEN, text={*TEXT, *WORDS}, may_be_zero=MAY_BE_ZERO)
    ]


@dataclass(frozen=True, kw_only=True)
class MemoryOf2026:
    """Errors as fractions; None where no row tells.

    Attributes:
        peaks: configurations with a golden peak, on one kind of GPU each, that are judged.
        peak_mape_zero_shot, peak_mape_calibrated: mean absolute error, before anything is learned
            and with constants calibrated on the reference.
        ran: rows of tables of times that ran and say enough of model, layout and recomputation.
        false_oom: share of those that are predicted not to fit.
        peaks_left_out, ran_left_out: reason -> rows of golden values, and of tables of times.
    """

    peaks: int
    peak_mape_zero_shot: float | None
    peak_mape_calibrated: float | None
    ran: int
    false_oom: float | None
    peaks_left_out: Mapping[str, int]
    ran_left_out: Mapping[str, int]


def judge(
    golden_rows: Sequence[PublishedRow],
    reference: Sequence[PublishedRow],
    timed: Sequence[PublishedRow],
) -> MemoryOf2026:
    """Return how far off memory is.

    Args:
        golden_rows: judged.
        reference: golden values that constants are calibrated on, of other configurations.
        timed: rows of tables of times, which ran unless they say otherwise.
    """
    judged = GoldenPeaks.of(golden_rows)
    known = GoldenPeaks.of(reference) if reference else None
    fits, left_out = fitting(timed)
    return MemoryOf2026(
        peaks=len(judged.gib),
        peak_mape_zero_shot=peak_error(judged),
        peak_mape_calibrated=peak_error(judged, known) if known else None,
        ran=len(fits),
        false_oom=float(np.mean(~fits)) if len(fits) else None,
        peaks_left_out=dict(Counter(judged.left_out.values())),
        ran_left_out=dict(Counter(left_out.values())),
    )


NOT_PREDICTED: Mapping[str, Callable[[PublishedRow], bool]] = {
    "on a GPU whose data sheet is not known": unknown_gpu,
    "out of memory or not ended": lambda row: row["status"] != "ok",
    "offload to the host, not covered": lambda row: bool(row.number("offload")),
    "what is recomputed is not told": lambda row: not row["activation_checkpointing"],
}
"""Reasons to leave a row of a table of times out where its memory is judged."""


def fitting(timed: Sequence[PublishedRow]) -> tuple[Mask, LeftOut]:
    """Return whether each row that ran is predicted to fit, before anything is learned."""
    facts = Facts.of(timed)
    unshaped = {"no shape or layout": lambda row: not shaped(row, facts)}
    ran, left_out = split_rows(timed, {**NOT_PREDICTED, **unshaped})
    alike: dict[tuple[StateWidths, bool], list[PublishedRow]] = defaultdict(list)
    for row in ran:
        forced = row.words.get("routing", "").startswith("force-balanced")
        alike[widths_of(row), forced].append(row)
    fits = [
        _fits(stack, widths, forced=forced)
        for (widths, forced), rows in alike.items()
        for stack in stacks_of(rows, facts, zero_stage=usual_zero)
    ]
    return np.concatenate([np.empty(0, dtype=np.bool_), *fits]), left_out


def _fits(stack: Stack, widths: StateWidths, *, forced: bool) -> Mask:
    """Return whether rows fit; no rank's experts get more where routing is forced."""
    constants = Parameters.default(stack.machine, tuning_of(stack.framework), widths)
    if forced:
        constants = replace(constants, routing_imbalance=1.0)
    need = memory_gib(Strategies(stack.columns, stack.machine, constants))
    return np.broadcast_to(need <= constants.usable_gib(stack.machine), len(stack))


def widths_of(row: PublishedRow) -> StateWidths:
    """Return the bytes that a row's program keeps: recipes of Megatron-Bridge and NeMo keep
    gradients in 16 bits, and those for DeepSeek's models the moments, too."""
    recipe = row["framework"].casefold()
    if not ("bridge" in recipe or "nemo" in recipe):
        return USUAL_STATES
    moments = 2.0 if "deepseek" in row["model"].casefold() else USUAL_STATES.moment_bytes
    return StateWidths(gradient_bytes=2.0, moment_bytes=moments)
