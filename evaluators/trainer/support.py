"""What the bundled trainer cannot run, said before anything is started."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evaluators.trainer.device import gpu_count
from search_spaces.lattice import Lattice
from search_spaces.program import ProgramCapabilities
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

CAPABILITIES = ProgramCapabilities(
    name="the bundled trainer", sequence_parallel=False, virtual_stages=False
)

Refusal = tuple[Callable[[Strategy], bool], str]

ANYWHERE: tuple[Refusal, ...] = (
    (
        lambda s: s.virtual_stages > 1,
        "the bundled trainer has no interleaved pipeline: virtual_stages must be 1",
    ),
    (
        lambda s: s.sequence_parallel,
        "the bundled trainer has no sequence parallelism: sequence_parallel must be false",
    ),
    (
        lambda s: s.zero_stage >= 2 and s.pipeline_parallel > 1,
        "DeepSpeed runs ZeRO 2 and 3 only without a pipeline: pipeline_parallel must be 1",
    ),
    # With DeepSpeed 0.19 the loss of fp16 under ZeRO 0 is off by 0.002 after four steps, and under
    # ZeRO 1 by 0.0001.
    (
        lambda s: s.precision == "fp16" and s.zero_stage == 0,
        "the bundled trainer runs fp16 only with ZeRO 1 to 3, not with zero_stage 0",
    ),
)

HERE: tuple[Refusal, ...] = (
    (
        lambda s: s.precision == "fp16" and gpu_count() == 0,
        "the bundled trainer runs fp16 on GPUs alone, and this machine has none: use fp32 or bf16",
    ),
)

DECISIVE = (
    "virtual_stages",
    "sequence_parallel",
    "zero_stage",
    "pipeline_parallel",
    "precision",
)
"""The dimensions that these look at."""


def unsupported(strategy: Strategy) -> str | None:
    """Return why the bundled trainer cannot run `strategy` on this machine; None where it can."""
    return _first((*ANYWHERE, *HERE), strategy)


def unsupported_anywhere(strategy: Strategy) -> str | None:
    """Return why it cannot run `strategy` whatever the nodes have; None where some nodes can."""
    return _first(ANYWHERE, strategy)


def _first(refusals: Sequence[Refusal], strategy: Strategy) -> str | None:
    return next((reason for refused, reason in refusals if refused(strategy)), None)


def unsupported_within(
    lattice: Lattice,
    *,
    reason_of: Callable[[Strategy], str | None] = unsupported,
) -> str | None:
    """Return why some strategy of `lattice` cannot be run; None where all can."""
    return next(filter(None, map(reason_of, lattice.distinct(DECISIVE))), None)


def indivisible(transformer: Transformer, strategy: Strategy) -> str | None:
    """Return why `transformer` cannot be cut as `strategy` asks; None where it can."""
    ranks = strategy.tensor_parallel
    cut = {
        "attention heads": transformer.num_attention_heads,
        "query groups": transformer.num_query_groups,
        "FFN columns": transformer.ffn_hidden_size,
    }
    for what, count in cut.items():
        if count % ranks:
            return f"{count} {what} cannot be divided among {ranks} tensor-parallel ranks"
    if strategy.pipeline_parallel > transformer.num_layers:
        return f"{transformer.num_layers} layers cannot fill {strategy.pipeline_parallel} stages"
    return None
