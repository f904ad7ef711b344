"""Which trials are worth running on one GPU: a pure function of the machine."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autotune.cost_model import estimate
from autotune.cost_model.parameters import is_cpu
from evaluators.trainer.support import unsupported_anywhere
from search_spaces.batch import GlobalBatch
from search_spaces.lattice import Lattice
from search_spaces.layers import Experts
from search_spaces.machine import Machine, offers_bf16
from search_spaces.rules import rule_masks
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer


def _gpt(name: str, layers: int, hidden: int, heads: int, **others: int) -> Transformer:
    return Transformer.gpt(
        name, num_layers=layers, hidden_size=hidden, num_attention_heads=heads, **others
    )


def _llama(name: str, *shape: int, **others: Any) -> Transformer:
    """`shape`: layers, hidden size, attention heads, query groups, width of the MLP."""
    sizes = zip(SHAPE, shape, strict=True)
    usual = {"seq_length": 2048, "vocab_size": 32000, "tied_embeddings": False}
    return Transformer(name=name, gated_mlp=True, **{**dict(sizes), **usual, **others})


SHAPE = ("num_layers", "hidden_size", "num_attention_heads", "num_query_groups", "ffn_hidden_size")
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

BALANCED = (
    "micro_batch_size",
    "gradient_accumulation_steps",
    "zero_stage",
    "activation_checkpointing",
    "flash_attention",
    "precision",
)
WEIGHTS: dict[tuple[str, object], float] = {
    ("precision", "bf16"): 4.0,
    ("precision", "fp16"): 2.0,
    ("flash_attention", True): 2.0,
    ("zero_stage", 1): 1.5,
}
"""How often a level is wanted against the others of its dimension; 1 where nothing is said."""


@dataclass(frozen=True, kw_only=True)
class PlannedTrial:
    """`fill`: predicted peak over the memory that can be used."""

    transformer: Transformer
    strategy: Strategy
    predicted_time_s: float
    fill: float

    def levels(self) -> list[tuple[str, object]]:
        chosen = [(name, getattr(self.strategy, name)) for name in BALANCED]
        return [("model", self.transformer.name), *chosen]


def one_gpu(machine: Machine) -> Machine:
    memory_gib = CPU_MEMORY_GIB if is_cpu(machine) else machine.memory_gib
    return replace(machine, gpus_per_node=1, max_nodes=1, memory_gib=memory_gib)


def plan(machine: Machine, *, quick: bool = False) -> list[PlannedTrial]:
    """Trials in the order in which they should run; the same machine gets the same ones.

    Each is the least usual so far of those in the next of the BANDS: the one whose model, batch,
    checkpointing, … were chosen least before. On a CPU the plan is always a quick one.
    """
    candidates = list(_candidates(machine, quick=quick))
    order = np.random.default_rng(0).permutation(len(candidates))
    left = [candidates[row] for row in order]
    taken: Counter[tuple[str, object]] = Counter()

    def unusual(trial: PlannedTrial) -> float:
        return sum(taken[level] / WEIGHTS.get(level, 1.0) for level in trial.levels())

    chosen = []
    most = QUICK_TRIALS if quick or is_cpu(machine) else TRIALS
    for band in itertools.islice(itertools.cycle(BANDS), min(most, len(left))):
        off = [_off(trial.fill, *band) for trial in left]
        near = [trial for trial, each in zip(left, off, strict=True) if each == min(off)]
        chosen.append(min(near, key=unusual))
        left.remove(chosen[-1])
        taken.update(chosen[-1].levels())
    return chosen


def _off(fill: float, least: float, most: float) -> float:
    middle, half = math.log(least * most) / 2, math.log(most / least) / 2
    return max(abs(math.log(fill) - middle) - half, 0.0)


def _candidates(machine: Machine, *, quick: bool) -> Iterator[PlannedTrial]:
    """All legal trials that one GPU may hold, or nearly, and that take no longer than they may."""
    tried = [s for s in _strategies(machine) if unsupported_anywhere(s) is None]
    lattice = Lattice.of(tried, gpus_per_node=machine.gpus_per_node)
    least, most = min(low for low, _ in BANDS), max(high for _, high in BANDS)
    for model in CPU_MODELS if is_cpu(machine) else GPU_MODELS:
        if quick and model.parameters > QUICK_PARAMETERS:
            continue
        refused = rule_masks(lattice, model, machine, GlobalBatch())
        cost = estimate(model, machine, lattice)
        fill = cost.memory_gib / cost.memory_limit_gib
        wanted = (fill >= least) & (fill <= most) & (cost.iteration_time_s <= LONGEST_STEP_S)
        for row in np.flatnonzero(wanted & ~np.logical_or.reduce(list(refused.values()))):
            yield PlannedTrial(
                transformer=model,
                strategy=lattice.strategy(int(row)),
                predicted_time_s=float(cost.iteration_time_s[row]),
                fill=float(fill[row]),
            )


def _strategies(machine: Machine) -> Iterator[Strategy]:
    """All combinations that are looked at, legal or not."""
    small = is_cpu(machine)
    widths = ("bf16", "fp16", "fp32") if offers_bf16(machine) else ("fp16", "fp32")
    levels: list[tuple[Any, ...]] = [
        (2, 8) if small else (1, 2, 4, 8, 16, 32, 64),
        (1, 2) if small else (1, 2, 4, 8),
        (0, 1, 2, 3),
        ("none", "full") if small else ("none", "selective", "full"),
        (True, False),
        ("fp32",) if small else widths,
    ]
    for values in itertools.product(*levels):
        named = dict(zip(BALANCED, values, strict=True))
        yield Strategy(tensor_parallel=1, pipeline_parallel=1, num_nodes=1, **named)
