"""What commits of Megatron-DeepSpeed cannot train, recognised in the source of a checkout.

This is the only list of them. Spaces leave out what it refuses, requests are refused by it, and
launch scripts look for its signs before they start. A checkout that cannot be read from here is
taken for the recommended one.

The first three came to the main branch with commit 676a482c of December 2024 and were still there
in its last commit, of July 2025. The parent, 6acc370a, trains gated models, grouped queries and
larger micro-batches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

WORKING_COMMIT = "6acc370a"
_OTHER_COMMIT = f"a checkout of commit {WORKING_COMMIT}"


@dataclass(frozen=True, kw_only=True)
class Defect:
    """One fault in the source; as a rule of a space, it refuses the strategies that meet it.

    Attributes:
        file: the file of the checkout that has the fault.
        sign: a POSIX extended regular expression that matches a line of a file with the fault.
        field: the field of the model or of the strategy that stands in the way.
        dimensions: those that decide whether a strategy meets the fault.
        hits: whether a model with a strategy meets the fault.
        reason: what happens then.
        valid: what works instead.
        recommended: whether the recommended commit has the fault too.
    """

    file: str
    sign: str
    field: str
    dimensions: tuple[str, ...] = ()
    hits: Callable[[Transformer, Strategy], bool]
    reason: str
    valid: str
    recommended: bool = False

    @property
    def of_model(self) -> bool:
        """Whether the model alone decides."""
        return not self.dimensions

    @property
    def because(self) -> str:
        return f"this Megatron-DeepSpeed cannot train it: {self.reason} ({self.file})"

    def refuses(
        self,
        strategy: Strategy,
        transformer: Transformer,
        machine: Machine,  # noqa: ARG002 (a fault of the source is the same on every machine)
    ) -> bool:
        return self.hits(transformer, strategy)

    def refusal(self, transformer: Transformer, strategy: Strategy) -> InvalidInput | None:
        """Return why these cannot be trained; None where they do not meet the fault."""
        if not self.hits(transformer, strategy):
            return None
        bearer = transformer if self.of_model else strategy
        return InvalidInput(self.field, getattr(bearer, self.field), self.because, valid=self.valid)


_ATTENTION = "megatron/model/transformer.py"
_THIRDS = "each_hidden_size *=.*// *3"
"""Queries, keys and values are each taken to be a third of what their projection yields."""

_ATTENTION_KERNEL = ("flash_attention", "precision")


def _without_flash_attention(strategy: Strategy) -> bool:
    return not strategy.flash_attention or strategy.precision == "fp32"


DEFECTS = (
    Defect(
        file="megatron/model/rotary_pos_embedding.py",
        sign=r"rope *= *\[base\.cos\(\)",
        field="gated_mlp",
        hits=lambda transformer, _: transformer.gated_mlp,
        reason=(
            "rotary positions come as a list, on which the pipelines of ZeRO 0 and 1 crash "
            "('list' object has no attribute 'to'), and from which ZeRO 2 and 3 take wrong angles"
        ),
        valid=f"{_OTHER_COMMIT}, or a model without a gated MLP",
    ),
    Defect(
        file=_ATTENTION,
        sign=_THIRDS,
        field="num_query_groups",
        hits=lambda transformer, _: transformer.num_query_groups != transformer.num_attention_heads,
        reason="keys and values are taken to be as wide as queries (shape … is invalid)",
        valid=f"{_OTHER_COMMIT}, or a model with a query group for each head",
    ),
    Defect(
        file=_ATTENTION,
        sign=_THIRDS,
        field="micro_batch_size",
        dimensions=("micro_batch_size", *_ATTENTION_KERNEL),
        hits=lambda _, strategy: (
            strategy.micro_batch_size > 1 and _without_flash_attention(strategy)
        ),
        reason=(
            "without FlashAttention, which 16-bit precisions alone have, attention takes one "
            "sample at a time (view size is not compatible)"
        ),
        valid=f"{_OTHER_COMMIT}, or 1, or flash_attention with bf16 or fp16",
    ),
    # In 6acc370a, and in its successors, which train no grouped queries at all.
    Defect(
        file=_ATTENTION,
        sign=r"hidden_states\.expand\(slen, batch, n_rep, head_dim\)",
        field="micro_batch_size",
        dimensions=("micro_batch_size", "tensor_parallel", *_ATTENTION_KERNEL),
        hits=lambda transformer, strategy: (
            strategy.micro_batch_size > 1
            and transformer.num_query_groups == strategy.tensor_parallel
            and transformer.num_query_groups != transformer.num_attention_heads
            and _without_flash_attention(strategy)
        ),
        reason=(
            "without FlashAttention, which 16-bit precisions alone have, a tensor-parallel rank "
            "with one query group takes one sample at a time (view size is not compatible)"
        ),
        valid="1, or flash_attention with bf16 or fp16, or fewer tensor-parallel ranks",
        recommended=True,
    ),
    # From September 2023 on, in every commit since, and in the FA2 branch of ORNL's fork.
    Defect(
        file="megatron/core/tensor_parallel/layers.py",
        sign=r"local_embeddings\(position_ids *- *self\.offset\)",
        field="sequence_parallel",
        dimensions=("sequence_parallel", "tensor_parallel"),
        hits=lambda transformer, strategy: (
            strategy.sequence_parallel
            and strategy.tensor_parallel > 1
            and not transformer.gated_mlp
        ),
        reason=(
            "each tensor-parallel rank holds its part of the learned positions and is asked for "
            "all of them (index out of range in self)"
        ),
        valid="false, or a gated model, whose positions are rotary",
        recommended=True,
    ),
)


def defects_of(checkout: str) -> tuple[Defect, ...]:
    """Return the defects of the checkout at this path; of the recommended commit where there is no
    path, or where the checkout cannot be read from here."""
    root = Path(checkout)
    if not checkout or not (root / "megatron").is_dir():
        return tuple(defect for defect in DEFECTS if defect.recommended)
    return tuple(defect for defect in DEFECTS if re.search(defect.sign, source(root / defect.file)))


def refusals(
    defects: Iterable[Defect], transformer: Transformer, strategy: Strategy
) -> Iterator[InvalidInput]:
    """Yield why each of these defects keeps the strategy from being trained, if it does."""
    for defect in defects:
        if refusal := defect.refusal(transformer, strategy):
            yield refusal


def source(file: Path) -> str:
    """Return the text of a file; an empty one where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
