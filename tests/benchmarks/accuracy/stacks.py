"""Rows of one machine and software stack, which are calibrated together, and what no model predicts
of them: repeats that differ, and labels that contradict each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from autotune.cost_model.columns import Array, Columns, Mask
from autotune.cost_model.parameters import Parameters
from evaluators.adapter.catalog import load_adapter
from search_spaces.machine import Machine
from search_spaces.program import USUAL_STATES, StateWidths, Tuning
from tests.benchmarks.accuracy.configurations import ZeroStage, columns_of
from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.hardware import kind_of, machine_of
from tests.benchmarks.accuracy.tables import PublishedRow

LEAST_ROWS = 12
"""Independent rows with which a stack is judged: 3 to learn from leave a few to be tested on."""

ACCUMULATION = ("gradient_accumulation_steps", "global_batch_size")
RESULTS = ("iteration_time_s", "peak_memory_gb", "memory_kind", "status")

ONE_NODE = 8
"""GPUs up to which published times may have been put together from one micro-batch's."""
EXACT = 1e-6
"""Relative deviation from a line that no measured times come near."""
A_LINE = 3
"""Rows from which on lying on a line means something."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Stack:
    """n rows of one cluster, framework and kind of GPU, with their columns for the cost model."""

    cluster: str
    framework: str
    kind: str
    machine: Machine
    rows: Sequence[PublishedRow]
    columns: Columns

    def figures(self, name: str) -> Array:
        """A column of figures, NaN where one is not known; shape (n,)."""
        return np.array([row.figures.get(name, np.nan) for row in self.rows])

    @property
    def prior(self) -> Parameters:
        """What is generally known of its GPU and its program."""
        return Parameters.default(
            self.machine, tuning_of(self.framework), states_of(self.framework)
        )

    def __len__(self) -> int:
        return len(self.rows)


LeftOut = dict[PublishedRow, str]
"""Rows that are not judged, each with the reason."""

VENDORS_OWN = ("megatron-lm", "megatron-core", "megatron-bridge", "nemo", "primus")


def tuning_of(framework: str) -> Tuning:
    """How far the program of a table's framework is tuned, as adapters declare it."""
    name = framework.casefold()
    if "automodel" not in name and any(each in name for each in VENDORS_OWN):
        return "vendor"
    return "usual" if name.startswith("megatron-deepspeed") else "plain"


def states_of(framework: str) -> StateWidths:
    """What the ready adapter of a table's framework says, of what rows do not tell."""
    name = framework.casefold()
    if name == "torchtitan":
        states = load_adapter("torchtitan-0.2").states
        return StateWidths(
            selective_by_operation=states.selective_by_operation,
            keeps_gathered=states.keeps_gathered,
        )
    if name.startswith("megatron-deepspeed"):
        width = load_adapter("megatron-deepspeed").states.bf16_gradient_bytes
        return StateWidths(bf16_gradient_bytes=width)
    return USUAL_STATES


def stack_key(row: PublishedRow) -> tuple[str, str, str]:
    return row["cluster"], row["framework"], kind_of(row)


def stacks_of(
    rows: Iterable[PublishedRow],
    facts: Facts,
    *,
    zero_stage: ZeroStage,
    key: Callable[[PublishedRow], tuple[str, str, str]] = stack_key,
) -> list[Stack]:
    """In the order in which they are met first. Two frameworks on one machine are two stacks, and
    so are two kinds of GPU.

    Args:
        key: cluster, framework and kind of GPU of a row; "" for any.
    """
    grouped: dict[tuple[str, str, str], list[PublishedRow]] = defaultdict(list)
    for row in rows:
        grouped[key(row)].append(row)
    results = []
    for (cluster, framework, kind), members in grouped.items():
        results.append(
            Stack(
                cluster=cluster,
                framework=framework,
                kind=kind,
                machine=machine_of(members[0]),
                rows=members,
                columns=columns_of(members, facts, zero_stage=zero_stage),
            )
        )
    return results


def named(stacks: Sequence[Stack]) -> dict[str, Stack]:
    """By the cluster's name, with the framework (and the kind of GPU) where it has several."""
    clusters = Counter(stack.cluster for stack in stacks)
    frameworks = Counter((stack.cluster, stack.framework) for stack in stacks)

    def name(stack: Stack) -> str:
        kinds = frameworks[stack.cluster, stack.framework]
        parts = [stack.cluster]
        parts += [stack.framework] if clusters[stack.cluster] > kinds else []
        parts += [stack.kind] if kinds > 1 else []
        return " / ".join(parts)

    return {name(stack): stack for stack in stacks}


def with_unknown_experts(row: PublishedRow) -> bool:
    """A mixture of experts whose widths the table does not have."""
    known = row.known("moe_top_k", "moe_ffn_hidden_size")
    return (row.number("num_experts") or 0) > 1 and not known


NOT_DESCRIBED: Mapping[str, Callable[[PublishedRow], bool]] = {
    "mixture of experts of unknown widths": with_unknown_experts,
}
"""Reasons to leave a row out of every benchmark on tables."""


def offloaded(row: PublishedRow) -> bool:
    """States on the host, which the cost model does not have."""
    return "offload" in row["framework"].casefold()


def shaped(row: PublishedRow, facts: Facts) -> bool:
    """Whether the row says enough of model and layout to be estimated at all."""
    parts = ("num_layers", "hidden_size", "tensor_parallel", "pipeline_parallel")
    return row.known(*parts) and facts.number(row, "seq_length") is not None


def split_rows(
    rows: Iterable[PublishedRow], reasons: Mapping[str, Callable[[PublishedRow], bool]]
) -> tuple[list[PublishedRow], LeftOut]:
    """Rows for which no reason to leave them out holds, and all others."""
    remaining: list[PublishedRow] = []
    left_out: LeftOut = {}
    for row in rows:
        reason = next((name for name, holds in reasons.items() if holds(row)), None)
        if reason is None:
            remaining.append(row)
        else:
            left_out[row] = reason
    return remaining, left_out


def independent(rows: Sequence[PublishedRow]) -> list[PublishedRow]:
    """Rows of timed steps without those that were computed from one another.

    Times of one node that are exactly linear in the accumulation were measured for one micro-batch
    and put together. That two points lie on a line says nothing, so the stack decides: where all
    its series of three or more rows are exact, each of its series counts once, by its middle row.
    """
    series: dict[tuple[object, ...], list[PublishedRow]] = defaultdict(list)
    for row in rows:
        series[stack_key(row), row.without(*ACCUMULATION, *RESULTS)].append(row)
    exact: dict[tuple[str, str, str], bool] = {}
    for members in series.values():
        if len(members) >= A_LINE and _on_one_node(members[0]):
            key = stack_key(members[0])
            exact[key] = exact.get(key, True) and _linear(members)
    chosen: list[PublishedRow] = []
    for members in series.values():
        together = _on_one_node(members[0]) and exact.get(stack_key(members[0]), False)
        chosen += [_middle(members)] if together else members
    return chosen


def _on_one_node(row: PublishedRow) -> bool:
    gpus = row.number("num_gpus")
    return gpus is not None and gpus <= ONE_NODE


def _accumulation(row: PublishedRow) -> float:
    """Accumulation, or the batch that it is a part of where the row has only that."""
    steps, samples = (row.number(name) for name in ACCUMULATION)
    return steps or samples or 0.0


def _linear(rows: Sequence[PublishedRow]) -> bool:
    steps = np.array([_accumulation(row) for row in rows])
    times = np.array([row.figures["iteration_time_s"] for row in rows])
    if len(np.unique(steps)) < A_LINE:
        return False
    design = np.stack([np.ones(len(steps)), steps], axis=1)
    line = design @ np.linalg.lstsq(design, times, rcond=None)[0]
    return bool(np.max(np.abs(line / times - 1.0)) < EXACT)


def _middle(rows: Sequence[PublishedRow]) -> PublishedRow:
    return sorted(rows, key=_accumulation)[len(rows) // 2]


ORDERED = ("micro_batch_size", "activation_checkpointing", "attention_kernel", "flash_attention")
"""Columns in which more, or less, surely takes more memory."""


def noise_floor(stack: Stack, figure: str) -> float | None:
    """The error of the median of rows that agree in every column but the results."""
    repeats: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for row in stack.rows:
        if row.known(figure):
            repeats[row.without(*RESULTS)].append(row.figures[figure])
    errors: list[float] = []
    for values in repeats.values():
        if len(values) > 1:
            errors += list(np.abs(np.median(values) / np.array(values) - 1.0))
    return float(np.mean(errors)) if errors else None


def contradictions(stack: Stack, failed: Mask) -> int:
    """The fewest labels that must be wrong for the others to agree with each other.

    A strategy that fitted contradicts one that failed and is like it in everything but a smaller
    micro-batch, more checkpointing, or a kernel that stores less. The fewest that touch all such
    pairs are as many as a maximum matching has (König 1931).

    Args:
        failed: shape (n,).
    """
    rest = [row.without(*ORDERED, *RESULTS) for row in stack.rows]
    numbers = {each: number for number, each in enumerate(dict.fromkeys(rest))}
    group = np.array([numbers[each] for each in rest])
    demands = _demands(stack)
    at_least = np.all(demands[:, np.newaxis, :] >= demands[np.newaxis, :, :], axis=-1)
    pairs = (group[:, np.newaxis] == group) & at_least & ~failed[:, np.newaxis] & failed
    matched = maximum_bipartite_matching(csr_array(pairs), perm_type="column")
    return int(np.sum(matched >= 0))


def _demands(stack: Stack) -> Array:
    """What makes a strategy need more memory, shape (n, 4): larger is more."""
    columns = stack.columns
    stored = 2.0 - 2.0 * columns["full_checkpointing"] - columns["selective_checkpointing"]
    scores = (1.0 + columns["unfused_softmax"]) * (1.0 - columns["flash_attention"])
    parts = (columns["micro_batch_size"], stored, scores, 1.0 - columns["fused_norm"])
    return np.stack([np.broadcast_to(part, len(stack)) for part in parts], axis=-1)
