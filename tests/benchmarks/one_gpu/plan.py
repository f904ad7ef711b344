"""Which trials are worth running on one GPU: a pure function of the machine."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.cost_model import estimate
from autotune.cost_model.parameters import is_cpu
from evaluators.trainer.support import unsupported_anywhere
from search_spaces.batch import GlobalBatch
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine, offers_bf16
from search_spaces.rules import rule_masks
from search_spaces.strategy import Precision, Strategy
from search_spaces.transformer import ActivationCheckpointing, Experts, Transformer


def _llama(
    name: str,
    layers: int,
    hidden: int,
    heads: int,
    groups: int,
    ffn: int,
    *,
    seq_length: int = 2048,
    vocab_size: int = 32000,
    experts: Experts | None = None,
) -> Transformer:
    return Transformer(
        name=name,
        num_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_query_groups=groups,
        ffn_hidden_size=ffn,
        gated_mlp=True,
        tied_embeddings=False,
        seq_length=seq_length,
        vocab_size=vocab_size,
        experts=experts,
    )


def _gpt(name: str, layers: int, hidden: int, heads: int, **others: int) -> Transformer:
    return Transformer.gpt(
        name, num_layers=layers, hidden_size=hidden, num_attention_heads=heads, **others
    )


MIXTURE = Experts(num_experts=16, top_k=4, ffn_hidden_size=1408)

GPU_MODELS = (
    _gpt("gpt-125m", 12, 768, 12, seq_length=1024),
    _llama("llama-250m", 16, 1024, 16, 4, 2816),
    _gpt("gpt-350m", 24, 1024, 16, seq_length=1024),
    _llama("llama-500m", 24, 1280, 20, 4, 3456),
    _gpt("gpt-760m", 24, 1536, 16),
    _llama("llama-1.1b", 22, 2048, 32, 4, 5632),
    _llama("mixture-1.2b", 16, 1024, 16, 4, 2816, experts=replace(MIXTURE, top_k=2)),
    _gpt("gpt-1.3b", 24, 2048, 16),
    _llama("mixture-2.5b", 16, 2048, 32, 4, 5632, experts=MIXTURE),
    _gpt("gpt-2.7b", 32, 2560, 20),
    _llama("llama-3b", 28, 3072, 24, 8, 8192, seq_length=4096),
    _gpt("gpt-6.7b", 32, 4096, 32),
    _llama("llama-7b", 32, 4096, 32, 32, 11008, seq_length=4096),
    _gpt("gpt-13b", 40, 5120, 40),
)
"""By size, up to more than any one GPU of today holds with its optimizer: GPT-3-like ones with tied
embeddings, Llama-like ones without, two of them mixtures of experts."""

CPU_MODELS = (
    _gpt("gpt-cpu", 4, 128, 4, seq_length=128, vocab_size=512),
    _llama("llama-cpu", 4, 128, 4, 2, 384, seq_length=128, vocab_size=512),
)
"""Seconds each on one core."""

TRIALS, QUICK_TRIALS = 40, 10
QUICK_PARAMETERS = 500e6
"""Models of a quick plan have at most so many."""

CPU_MEMORY_GIB = 0.1
"""Of the one rank on a CPU, so that the small models there reach its limit, too."""

LONGEST_STEP_S = 2.5
"""Predicted; what takes longer is not planned."""

BANDS = ((0.05, 0.35), (0.6, 0.85), (0.35, 0.6), (1.1, 1.3), (0.85, 1.0), (0.35, 0.6), (1.3, 1.8))
"""Predicted memory over what can be used, of one trial after the other, again and again: any
beginning of a plan holds small trials, some near the limit, and some that should run out."""

# How often a level is wanted against the others of its dimension; 1 where nothing is said.
WEIGHTS: dict[tuple[str, object], float] = {
    ("precision", "bf16"): 4.0,
    ("precision", "fp16"): 2.0,
    ("flash_attention", True): 2.0,
    ("zero_stage", 1): 1.5,
}


@dataclass(frozen=True, kw_only=True)
class PlannedTrial:
    """One model in one strategy, and what the cost model expects before anything is measured.

    Attributes:
        fill: predicted peak over the memory that can be used.
    """

    transformer: Transformer
    strategy: Strategy
    predicted_time_s: float
    fill: float

    @property
    def key(self) -> tuple[Transformer, Strategy]:
        return self.transformer, self.strategy


def one_gpu(machine: Machine) -> Machine:
    """`machine` with one of its GPUs; on a CPU with one rank that has little memory."""
    memory_gib = CPU_MEMORY_GIB if is_cpu(machine) else machine.memory_gib
    return replace(machine, gpus_per_node=1, max_nodes=1, memory_gib=memory_gib)


def plan(machine: Machine, *, quick: bool = False) -> list[PlannedTrial]:
    """Trials in the order in which they should run; the same machine gets the same ones.

    Each is the least usual so far of those in the next of the BANDS: the one whose model, batch,
    checkpointing, … were chosen least before. On a CPU the plan is always a quick one.
    """
    candidates = _candidates(machine, quick=quick)
    order = np.random.default_rng(0).permutation(len(candidates))
    chosen = Chosen([candidates[i] for i in order])
    bands = itertools.cycle(BANDS)
    count = QUICK_TRIALS if quick or is_cpu(machine) else TRIALS
    return [chosen.next(*next(bands)) for _ in range(min(count, len(candidates)))]


class Chosen:
    """Picks from candidates what was picked least."""

    def __init__(self, candidates: Sequence[PlannedTrial]) -> None:
        self._left = dict(enumerate(candidates))
        self._levels = {row: levels(each) for row, each in self._left.items()}
        self._fill = np.log([each.fill for each in candidates])
        self._taken: Counter[tuple[str, object]] = Counter()

    def next(self, least: float, most: float) -> PlannedTrial:
        """Of a fill from `least` to `most`; the nearest to it where none is."""
        middle, half = math.log(least * most) / 2, math.log(most / least) / 2
        off = np.maximum(np.abs(self._fill - middle) - half, 0.0).tolist()
        nearest = min(off[row] for row in self._left)
        row = min((row for row in self._left if off[row] == nearest), key=self._usual)
        self._taken.update(self._levels[row])
        return self._left.pop(row)

    def _usual(self, row: int) -> float:
        return sum(self._taken[level] / WEIGHTS.get(level, 1.0) for level in self._levels[row])


def levels(trial: PlannedTrial) -> tuple[tuple[str, object], ...]:
    """What is to be balanced."""
    s = trial.strategy
    return (
        ("model", trial.transformer.name),
        ("micro_batch_size", s.micro_batch_size),
        ("gradient_accumulation_steps", s.gradient_accumulation_steps),
        ("zero_stage", s.zero_stage),
        ("activation_checkpointing", s.activation_checkpointing),
        ("flash_attention", s.flash_attention),
        ("precision", s.precision),
    )


def _candidates(machine: Machine, *, quick: bool) -> list[PlannedTrial]:
    """All legal trials that one GPU may hold, or nearly, and that take no longer than they may."""
    tried = [s for s in _strategies(machine) if unsupported_anywhere(s) is None]
    lattice = Lattice.of(tried, gpus_per_node=machine.gpus_per_node)
    models = _models(machine, quick=quick)
    return [trial for model in models for trial in _of_model(model, machine, lattice)]


def _models(machine: Machine, *, quick: bool) -> Sequence[Transformer]:
    if is_cpu(machine):
        return CPU_MODELS
    return [m for m in GPU_MODELS if not quick or m.parameters <= QUICK_PARAMETERS]


def _of_model(
    transformer: Transformer, machine: Machine, lattice: Lattice
) -> Iterator[PlannedTrial]:
    refused = rule_masks(lattice, transformer, machine, GlobalBatch())
    cost = estimate(transformer, machine, lattice)
    fill = cost.memory_gib / cost.memory_limit_gib
    least, most = min(low for low, _ in BANDS), max(high for _, high in BANDS)
    wanted = (fill >= least) & (fill <= most) & (cost.iteration_time_s <= LONGEST_STEP_S)
    for row in np.flatnonzero(wanted & ~np.logical_or.reduce(list(refused.values()))):
        yield PlannedTrial(
            transformer=transformer,
            strategy=lattice.strategy(int(row)),
            predicted_time_s=float(cost.iteration_time_s[row]),
            fill=float(fill[row]),
        )


def _strategies(machine: Machine) -> Iterator[Strategy]:
    """All combinations that are looked at, legal or not."""
    small = is_cpu(machine)
    checkpointings: tuple[ActivationCheckpointing, ...] = ("none", "selective", "full")
    for micro_batch, accumulation, zero, checkpointing, flash, precision in itertools.product(
        (2, 8) if small else (1, 2, 4, 8, 16, 32, 64),
        (1, 2) if small else (1, 2, 4, 8),
        (0, 1, 2, 3),
        ("none", "full") if small else checkpointings,
        (True, False),
        _precisions(machine),
    ):
        yield Strategy(
            tensor_parallel=1,
            pipeline_parallel=1,
            micro_batch_size=micro_batch,
            gradient_accumulation_steps=accumulation,
            zero_stage=zero,
            num_nodes=1,
            activation_checkpointing=checkpointing,
            flash_attention=flash,
            precision=precision,
        )


def _precisions(machine: Machine) -> tuple[Precision, ...]:
    if is_cpu(machine):
        return ("fp32",)
    return ("bf16", "fp16", "fp32") if offers_bf16(machine) else ("fp16", "fp32")
