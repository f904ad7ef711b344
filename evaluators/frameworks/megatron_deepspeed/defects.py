"""What some commits of Megatron-DeepSpeed cannot train, recognised in the source of a checkout.

The first three came to the main branch with commit 676a482c of December 2024 and were still there
in its last one, of July 2025. Its parent 6acc370a trains all of these: gated models, grouped
queries and any micro-batch, with TP 1 and 2, PP 1 and 2 and ZeRO 0 to 3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from search_spaces.errors import InvalidInput
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

WORKING_COMMIT = "6acc370a"
_OTHER_COMMIT = f"a checkout of commit {WORKING_COMMIT}"


@dataclass(frozen=True, kw_only=True)
class Defect:
    """One fault in the source.

    Attributes:
        file: of the checkout.
        sign: a regular expression, found in the file where the fault is in it.
        field: of the model or of the strategy, which stands in the way.
        hits: whether a model with a strategy meets the fault.
        reason: what happens then.
        valid: what would do instead.
    """

    file: str
    sign: str
    field: str
    hits: Callable[[Transformer, Strategy], bool]
    reason: str
    valid: str

    def refusal(self, transformer: Transformer, strategy: Strategy) -> InvalidInput | None:
        """Return why these cannot be trained; None where they do not meet the fault."""
        if not self.hits(transformer, strategy):
            return None
        bearer = transformer if hasattr(transformer, self.field) else strategy
        reason = f"this Megatron-DeepSpeed cannot train it: {self.reason} ({self.file})"
        return InvalidInput(self.field, getattr(bearer, self.field), reason, valid=self.valid)


_ATTENTION = "megatron/model/transformer.py"
_THIRDS = r"each_hidden_size\s*=.*//\s*3\b"
"""Queries, keys and values are each taken to be a third of what their projection yields."""

DEFECTS = (
    Defect(
        file="megatron/model/rotary_pos_embedding.py",
        sign=r"\brope\s*=\s*\[base\.cos\(\)",
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
        hits=lambda _, strategy: (
            strategy.micro_batch_size > 1
            and not (strategy.flash_attention and strategy.precision != "fp32")
        ),
        reason=(
            "without FlashAttention, which 16-bit precisions alone have, attention takes one "
            "sample at a time (view size is not compatible)"
        ),
        valid=f"{_OTHER_COMMIT}, or 1, or flash_attention with bf16 or fp16",
    ),
    # From September 2023 on, in every commit since.
    Defect(
        file="megatron/core/tensor_parallel/layers.py",
        sign=r"local_embeddings\(position_ids\s*-\s*self\.offset\)",
        field="sequence_parallel",
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
    ),
)


def defects_of(checkout: Path) -> tuple[Defect, ...]:
    """Return the defects that the checkout has; none where it cannot be read from here."""
    return tuple(
        defect for defect in DEFECTS if re.search(defect.sign, source(checkout / defect.file))
    )


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
