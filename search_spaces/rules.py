"""Legality: which strategies a rule refuses or warns of, and the rules that refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, TypeVar

import numpy as np

from search_spaces.batch import GlobalBatch
from search_spaces.dimensions import BY_NAME, DIVIDING
from search_spaces.lattice import Lattice, Mask
from search_spaces.layers import Experts, LinearAttention, Mamba
from search_spaces.machine import NARROW, Machine, offers
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities, program_masks
from search_spaces.rule import Rule, RuleContext, Severity
from search_spaces.stages import CHUNKS_OF_ENDS
from search_spaces.strategy import Strategy
from search_spaces.transformer import RECOMPUTED_SETS, Transformer
from search_spaces.warning_rules import EXPERTS_WITHIN_NODE, WARNING

PRECISIONS = tuple(map(str, BY_NAME["precision"].values))
BLOCKS_OF_32 = ("mxfp8", "nvfp4")

Part = TypeVar("Part")

PROGRAM_RULE = "program"
"""The rule that stands for all reasons of the program's own (`program_masks`)."""


@dataclass(frozen=True)
class Finding:
    """A rule that one strategy violates, and why, with the numbers."""

    rule: str
    reason: str
    severity: Severity


def _mamba_uneven(mamba: Mamba, tensor: Mask, context: Mask) -> Any:
    groups = np.maximum(mamba.num_groups // tensor, 1)
    apart = (groups % context != 0) & (context % groups != 0)
    return (mamba.num_heads % (tensor * context) != 0) | apart


def _linear_uneven(linear: LinearAttention, ranks: Mask) -> Any:
    return (linear.key_heads % ranks != 0) | (linear.value_heads % ranks != 0)


def _rule_of(
    part: Callable[[Transformer], Part | None],
    *,
    name: str,
    demand: str,
    broken: Callable[[Lattice, Part, RuleContext], Any],
    reason: Callable[[Strategy, Part, RuleContext], str],
) -> Rule:
    def breaks(lattice: Lattice, to: RuleContext) -> Any:
        its = part(to.transformer)
        return its is not None and broken(lattice, its, to)

    def why(strategy: Strategy, to: RuleContext) -> str:
        its = part(to.transformer)
        return "" if its is None else reason(strategy, its, to)

    return Rule(name=name, demand=demand, broken=breaks, reason=why)


def _experts(transformer: Transformer) -> Experts | None:
    return transformer.experts


def _mamba(transformer: Transformer) -> Mamba | None:
    return transformer.mamba


def _linear(transformer: Transformer) -> LinearAttention | None:
    return transformer.linear_attention


def findings(
    strategy: Strategy,
    transformer: Transformer,
    machine: Machine,
    batch: GlobalBatch = GlobalBatch(),  # noqa: B008  (frozen, so shared safely)
    *,
    program: ProgramCapabilities = ANY_PROGRAM,
) -> list[Finding]:
    """Return every rule that one strategy violates, refusals first; none if it is legal and without
    warnings."""
    lattice = Lattice.of([strategy], gpus_per_node=machine.gpus_per_node)
    context = RuleContext(transformer, machine, batch, program)
    return [
        Finding(rule.name, rule.reason(strategy, context), rule.severity)
        for rule in sorted(RULES.values(), key=lambda rule: rule.severity)
        if np.any(rule.broken(lattice, context))
    ]


def is_refused(
    strategy: Strategy,
    transformer: Transformer,
    machine: Machine,
    *,
    program: ProgramCapabilities = ANY_PROGRAM,
) -> bool:
    found = findings(strategy, transformer, machine, program=program)
    return any(each.severity == "refuse" for each in found)


def experts_across_network(
    strategy: Strategy, transformer: Transformer, machine: Machine
) -> str | None:
    """Return what expert parallelism sends over the network, as a sentence without a subject; None
    if tokens stay on the fast links of a node or rack."""
    found = findings(strategy, transformer, machine)
    return next((each.reason for each in found if each.rule == EXPERTS_WITHIN_NODE), None)


def rule_masks(
    lattice: Lattice,
    transformer: Transformer,
    machine: Machine,
    batch: GlobalBatch,
    *,
    program: ProgramCapabilities = ANY_PROGRAM,
    severity: Severity = "refuse",
) -> dict[str, Mask]:
    """Return rule name -> mask, true where it refuses (or warns of) a strategy: of shape (n,), or
    with an axis of length 1 for each dimension of an open grid that it does not look at."""
    context = RuleContext(transformer, machine, batch, program)
    return {
        rule.name: lattice.shaped(np.asarray(rule.broken(lattice, context), dtype=np.bool_))
        for rule in RULES.values()
        if rule.severity == severity
    }


def _parts_of_sequence(value: Callable[[str], Any]) -> Any:
    over_tensor = np.where(value("sequence_parallel"), value("tensor_parallel"), 1)
    return 2 * value("context_parallel") * over_tensor


def _alignment(precision: Any) -> Any:
    return np.where(np.isin(precision, BLOCKS_OF_32), 32, 16)


def _widths(value: Callable[[str], Any], transformer: Transformer) -> list[tuple[str, Any]]:
    tensor = value("tensor_parallel")
    over = np.where(value("sequence_parallel"), tensor, 1) * value("context_parallel")
    tokens = transformer.seq_length * value("micro_batch_size") // over
    sides = [
        ("hidden_size", transformer.hidden_size),
        ("the width of attention on a GPU,", transformer.query_size // tensor),
        ("the number of tokens on a GPU,", tokens),
    ]
    if transformer.has_dense_mlp:
        sides.append(("the width of the MLP on a GPU,", transformer.ffn_hidden_size // tensor))
    if (experts := transformer.experts) is not None:
        split = value("expert_tensor_parallel")
        sides.append(("the width of an expert on a GPU,", experts.ffn_hidden_size // split))
    return sides


def _cut_mlps(transformer: Transformer) -> list[tuple[str, int]]:
    shared = transformer.experts.shared_ffn_hidden_size if transformer.experts else 0
    dense = transformer.ffn_hidden_size if transformer.has_dense_mlp else 0
    return [("ffn_hidden_size", dense), ("shared_ffn_hidden_size", shared)]


def _product(strategy: Strategy) -> str:
    values = ((name, strategy.value(name)) for name in DIVIDING)
    return " x ".join(
        f"{name} {value}" for name, value in values if value > 1 or BY_NAME[name].is_searched
    )


_REFUSING = (
    Rule(
        name="machine_nodes",
        demand="num_nodes is at most the machine's number of nodes",
        broken=lambda lattice, to: lattice["num_nodes"] > to.machine.max_nodes,
        reason=lambda s, to: (
            f"{s.num_nodes} nodes are more than the {to.machine.max_nodes} of {to.machine.name}"
        ),
    ),
    Rule(
        name="world_size",
        demand=f"{' x '.join(DIVIDING)} divides the number of GPUs",
        broken=lambda lattice, _: lattice.uneven_world,
        reason=lambda s, to: (
            f"{_product(s)} = {s.model_parallel} does not divide "
            f"{s.world_size(to.machine.gpus_per_node)} GPUs "
            f"({s.num_nodes} node{'s' if s.num_nodes > 1 else ''} x {to.machine.gpus_per_node})"
        ),
    ),
    Rule(
        name="layers_fill_pipeline",
        demand="pipeline_parallel is at most the number of layers",
        broken=lambda lattice, to: lattice["pipeline_parallel"] > to.transformer.num_layers,
        reason=lambda s, to: (
            f"{to.transformer.num_layers} layers cannot fill {s.pipeline_parallel} stages"
        ),
    ),
    Rule(
        name="heads_by_tensor",
        demand="tensor_parallel divides the attention heads",
        broken=lambda lattice, to: (
            to.transformer.num_attention_heads % lattice["tensor_parallel"] != 0
        ),
        reason=lambda s, to: (
            f"{to.transformer.num_attention_heads} attention heads are not divisible by "
            f"tensor_parallel {s.tensor_parallel}"
        ),
    ),
    Rule(
        name="query_groups_by_tensor",
        demand=(
            "tensor_parallel divides the query groups, or is a multiple of them if the program "
            "repeats them"
        ),
        broken=lambda lattice, to: (
            (to.transformer.num_query_groups % lattice["tensor_parallel"] != 0)
            & ~(
                (lattice["tensor_parallel"] % to.transformer.num_query_groups == 0)
                & to.program.repeats_query_groups
            )
        ),
        reason=lambda s, to: (
            f"{to.transformer.num_query_groups} query groups are not divisible by "
            f"tensor_parallel {s.tensor_parallel}"
            + (
                f", and {to.program.name} does not repeat them"
                if s.tensor_parallel % to.transformer.num_query_groups == 0
                else ""
            )
        ),
    ),
    Rule(
        name="ffn_by_tensor",
        demand="tensor_parallel divides the widths of the MLP and of shared experts",
        broken=lambda lattice, to: (
            sum(width % lattice["tensor_parallel"] for _, width in _cut_mlps(to.transformer)) != 0
        ),
        reason=lambda s, to: next(
            f"{name} {width} is not divisible by tensor_parallel {s.tensor_parallel}"
            for name, width in _cut_mlps(to.transformer)
            if width % s.tensor_parallel
        ),
    ),
    Rule(
        name="zero_2_without_pipeline",
        demand="ZeRO stage 2 runs only without a pipeline",
        # FSDP, which runs with pipelines, accumulates there what it does not yet reduce: stage 2
        # would be stage 1, or the stage 3 of a program that keeps the weights it has gathered.
        broken=lambda lattice, _: (lattice["zero_stage"] == 2) & (lattice["pipeline_parallel"] > 1),
        reason=lambda s, _: (
            f"zero_stage 2 cannot shard gradients with pipeline_parallel {s.pipeline_parallel}, "
            "where they stay whole until the last micro-batch: use zero_stage 1 or 3"
        ),
    ),
    Rule(
        name="global_batch",
        demand="micro_batch_size x gradient_accumulation_steps x data_parallel is an allowed batch",
        # Judged where the data-parallel size is whole; otherwise another rule is broken.
        broken=lambda lattice, to: (
            ~lattice.uneven_world
            & (
                (lattice.global_batch_size < to.batch.least)
                | (lattice.global_batch_size > to.batch.most)
            )
        ),
        reason=lambda s, to: (
            f"micro_batch_size {s.micro_batch_size} x gradient_accumulation_steps "
            f"{s.gradient_accumulation_steps} x data_parallel "
            f"{s.data_parallel(to.machine.gpus_per_node)} is a global batch of "
            f"{s.global_batch_size(to.machine.gpus_per_node)} samples; allowed: {to.batch}"
        ),
    ),
    Rule(
        name="virtual_stages_need_pipeline",
        demand="virtual_stages above 1 need a pipeline",
        broken=lambda lattice, _: (
            (lattice["virtual_stages"] > 1) & (lattice["pipeline_parallel"] == 1)
        ),
        reason=lambda s, _: (
            f"virtual_stages {s.virtual_stages} needs a pipeline, and pipeline_parallel is 1"
        ),
    ),
    Rule(
        name="layers_fill_virtual_stages",
        demand="pipeline_parallel x virtual_stages is at most the number of layers + 2",
        broken=lambda lattice, to: (
            (lattice["virtual_stages"] > 1)
            & (
                lattice["pipeline_parallel"] * lattice["virtual_stages"]
                > to.transformer.num_layers + CHUNKS_OF_ENDS
            )
        ),
        reason=lambda s, to: (
            f"{to.transformer.num_layers} layers cannot fill pipeline_parallel "
            f"{s.pipeline_parallel} x virtual_stages {s.virtual_stages}"
        ),
    ),
    Rule(
        name="sequence_by_tensor",
        demand="with sequence_parallel, tensor_parallel divides the sequence",
        broken=lambda lattice, to: (
            lattice["sequence_parallel"]
            & (to.transformer.seq_length % lattice["tensor_parallel"] != 0)
        ),
        reason=lambda s, to: (
            f"a sequence of {to.transformer.seq_length} tokens is not divisible by "
            f"tensor_parallel {s.tensor_parallel}"
        ),
    ),
    Rule(
        name="sequence_by_context",
        demand=(
            "context_parallel above 1, times 2, divides the sequence, and with sequence_parallel "
            "each part is divided by tensor_parallel"
        ),
        broken=lambda lattice, to: (
            np.any(lattice["context_parallel"] > 1)
            and (lattice["context_parallel"] > 1)
            & (to.transformer.seq_length % _parts_of_sequence(lattice.__getitem__) != 0)
        ),
        reason=lambda s, to: (
            f"a sequence of {to.transformer.seq_length} tokens is not divisible into "
            f"{_parts_of_sequence(s.value)} parts: 2 x context_parallel {s.context_parallel}"
            + (f" x tensor_parallel {s.tensor_parallel}" if s.sequence_parallel else "")
            + ", which balances causal attention"
        ),
    ),
    Rule(
        name="experts_wanted",
        demand="expert_parallel and expert_tensor_parallel above 1 need a model with experts",
        broken=lambda lattice, to: (
            to.transformer.experts is None
            and not to.program.divides_experts_unseen
            and (lattice["expert_parallel"] > 1) | (lattice["expert_tensor_parallel"] > 1)
        ),
        reason=lambda s, to: (
            f"{to.transformer.name} has no experts, so expert_parallel and expert_tensor_parallel "
            f"must be 1 (here {s.expert_parallel} and {s.expert_tensor_parallel})"
        ),
    ),
    _rule_of(
        _experts,
        name="experts_by_expert_parallel",
        demand="expert_parallel divides the experts",
        broken=lambda lattice, experts, _: experts.num_experts % lattice["expert_parallel"] != 0,
        reason=lambda s, experts, _: (
            f"{experts.num_experts} experts are not divisible by expert_parallel "
            f"{s.expert_parallel}"
        ),
    ),
    _rule_of(
        _experts,
        name="expert_world_size",
        demand=(
            "expert_tensor_parallel x expert_parallel x pipeline_parallel divides the number of "
            "GPUs, in a model with experts"
        ),
        broken=lambda lattice, _, __: lattice.groups.experts_left_over != 0,
        reason=lambda s, _, to: (
            f"expert_tensor_parallel {s.expert_tensor_parallel} x expert_parallel "
            f"{s.expert_parallel} x pipeline_parallel {s.pipeline_parallel} = "
            f"{s.groups(1).expert_model_parallel} does not divide "
            f"{s.world_size(to.machine.gpus_per_node)} GPUs"
        ),
    ),
    _rule_of(
        _experts,
        name="expert_width_by_expert_tensor",
        demand="expert_tensor_parallel divides the width of an expert",
        broken=lambda lattice, experts, _: (
            experts.ffn_hidden_size % lattice["expert_tensor_parallel"] != 0
        ),
        reason=lambda s, experts, _: (
            f"experts of width {experts.ffn_hidden_size} are not divisible by "
            f"expert_tensor_parallel {s.expert_tensor_parallel}"
        ),
    ),
    _rule_of(
        _experts,
        name="experts_split_as_layers",
        demand=(
            "in a model with experts, expert_tensor_parallel is tensor_parallel, unless the "
            "program can split them differently"
        ),
        broken=lambda lattice, _, to: (
            to.program.splits_experts_as_layers
            and lattice["expert_tensor_parallel"] != lattice["tensor_parallel"]
        ),
        reason=lambda s, _, to: (
            f"{to.program.name} splits experts like all other weights: expert_tensor_parallel must "
            f"be tensor_parallel {s.tensor_parallel} (here {s.expert_tensor_parallel})"
        ),
    ),
    _rule_of(
        _mamba,
        name="mamba_groups_by_tensor",
        demand="tensor_parallel divides the groups of a Mamba block",
        # Megatron Core, mamba_mixer.py: each rank has one group at least, and whole ones.
        broken=lambda lattice, mamba, _: mamba.num_groups % lattice["tensor_parallel"] != 0,
        reason=lambda s, mamba, _: (
            f"{mamba.num_groups} groups of a Mamba block are not divisible by tensor_parallel "
            f"{s.tensor_parallel}"
        ),
    ),
    _rule_of(
        _mamba,
        name="mamba_heads_by_context",
        demand=(
            "context_parallel divides the heads of a Mamba block on one GPU of tensor_parallel, "
            "and divides or is a multiple of its groups there"
        ),
        # Megatron Core, mamba_context_parallel.py: between two all-to-alls each rank has whole
        # heads, and whole groups or a copy of one.
        broken=lambda lattice, mamba, _: _mamba_uneven(
            mamba, lattice["tensor_parallel"], lattice["context_parallel"]
        ),
        reason=lambda s, mamba, _: (
            f"{mamba.num_heads} heads and {mamba.num_groups} groups of a Mamba block cannot be "
            f"split over tensor_parallel {s.tensor_parallel} x context_parallel "
            f"{s.context_parallel}"
        ),
    ),
    _rule_of(
        _linear,
        name="linear_heads",
        demand="tensor_parallel x context_parallel divides the heads of linear attention",
        # Megatron Core (d98e8a64), transformer_config.py: each rank has whole heads.
        broken=lambda lattice, linear, _: _linear_uneven(
            linear, lattice["tensor_parallel"] * lattice["context_parallel"]
        ),
        reason=lambda s, linear, _: (
            f"{linear.key_heads} and {linear.value_heads} heads of linear attention are not "
            f"divisible by tensor_parallel {s.tensor_parallel} x context_parallel "
            f"{s.context_parallel}"
        ),
    ),
    Rule(
        name="experts_by_sequence_parallel",
        demand=(
            "in a model with experts, tensor_parallel above 1 needs sequence_parallel, if the "
            "program requires it"
        ),
        broken=lambda lattice, to: (
            to.program.ties_sequence_parallel(to.transformer)
            and (lattice["tensor_parallel"] > 1) & ~lattice["sequence_parallel"]
        ),
        reason=lambda s, _: (
            f"experts with tensor_parallel {s.tensor_parallel} need sequence_parallel on"
        ),
    ),
    Rule(
        name="precision",
        demand="the GPU supports the precision",
        broken=lambda lattice, to: np.isin(
            lattice["precision"], [each for each in PRECISIONS if not offers(to.machine, each)]
        ),
        reason=lambda s, to: (
            f"{to.machine.gpu} has no bf16; fp16 is its 16-bit format"
            if s.precision == "bf16"
            else f"{to.machine.gpu} has no {s.precision}, and nothing emulates it"
        ),
    ),
    Rule(
        name="recomputed_parts",
        demand="the model has the parts to recompute",
        broken=lambda lattice, to: np.isin(
            lattice["activation_checkpointing"],
            [each for each in RECOMPUTED_SETS if not to.transformer.has_parts(each)],
        ),
        reason=lambda s, to: (
            f"{to.transformer.name} lacks some of the parts to recompute: "
            f"{s.activation_checkpointing}"
        ),
    ),
    Rule(
        name="narrow_alignment",
        demand="below 16 bits, widths of matrix products are divisible by 16 (32 in mxfp8, nvfp4)",
        broken=lambda lattice, to: (
            np.any(np.isin(lattice["precision"], NARROW))
            and np.isin(lattice["precision"], NARROW)
            & reduce(
                or_,
                (
                    width % _alignment(lattice["precision"]) != 0
                    for _, width in _widths(lattice.__getitem__, to.transformer)
                ),
            )
        ),
        reason=lambda s, to: next(
            f"{words} {width} is not divisible by {_alignment(s.precision)}, as matrix products in "
            f"{s.precision} require"
            for words, width in _widths(s.value, to.transformer)
            if width % _alignment(s.precision)
        ),
    ),
    Rule(
        name="trained_layers",
        demand="the program of the trials trains all kinds of the model's layers",
        broken=lambda _, to: to.program.untrained(to.transformer) is not None,
        reason=lambda _, to: to.program.untrained(to.transformer) or "",
    ),
    Rule(
        name=PROGRAM_RULE,
        demand="the program of the trials can run it",
        broken=lambda lattice, to: reduce(
            or_,
            program_masks(lattice, to.transformer, to.machine, to.program).values(),
            np.zeros((), dtype=np.bool_),
        ),
        reason=lambda s, to: next(
            refusal.because
            for refusal in to.program.refusals
            if refusal.refuses(s, to.transformer, to.machine)
        ),
    ),
)

RULES: Mapping[str, Rule] = {rule.name: rule for rule in (*_REFUSING, *WARNING)}
