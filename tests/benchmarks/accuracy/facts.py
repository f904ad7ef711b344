"""What is known of a model's shape, from a row itself, from other rows, or from its family."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.benchmarks.accuracy.tables import PublishedRow

SHAPE = (
    *("num_attention_heads", "num_query_groups", "head_dim", "ffn_hidden_size", "seq_length"),
    *("vocab_size", "gated_mlp"),
)
"""What one table may say of a model and another leave out."""

GATED_FAMILIES = (
    *("llama", "intern", "mistral", "mixtral", "qwen", "gemma", "deepseek", "baichuan", "olmo"),
    "chatglm",
)
USUAL_HEAD = 128
USUAL_VOCABULARY = 51200
GATED_MULTIPLE = 256


@dataclass(frozen=True)
class Facts:
    """What all tables together say.

    Attributes:
        of_model: by cluster, model and column.
        vocabularies: by cluster.
    """

    of_model: Mapping[tuple[str, str, str], float]
    vocabularies: Mapping[str, float]

    @classmethod
    def of(cls, rows: Iterable[PublishedRow]) -> Facts:
        """Where rows differ, the first counts."""
        of_model: dict[tuple[str, str, str], float] = {}
        vocabularies: dict[str, float] = {}
        for row in rows:
            for name in SHAPE:
                if (value := row.number(name)) is not None:
                    of_model.setdefault((row["cluster"], row["model"], name), value)
            if (size := row.number("vocab_size")) is not None:
                vocabularies.setdefault(row["cluster"], size)
        return cls(of_model, vocabularies)

    def number(self, row: PublishedRow, name: str) -> float | None:
        """By the row, or else by another of the same model on the same cluster."""
        value = row.number(name)
        return self.of_model.get((row["cluster"], row["model"], name)) if value is None else value

    def shape(self, row: PublishedRow) -> dict[str, float]:
        """All columns of the model of a row with layers, hidden size and a sequence length.

        What no row gives is as usual: heads of 128, no grouping of queries, an MLP four times
        as wide as the model, or 8/3 times and a multiple of 256 where it is gated (Llama). A gated
        model follows Llama in its output layer, too: it has a weight of its own. A vocabulary may
        be another model's of the same cluster, where one tokenizer serves all.
        """
        hidden = row.figures["hidden_size"]
        gated = self._gated(row)
        heads = self.number(row, "num_attention_heads") or max(1.0, round(hidden / USUAL_HEAD))
        usual_ffn = (
            GATED_MULTIPLE * math.ceil(8.0 * hidden / 3.0 / GATED_MULTIPLE)
            if gated
            else 4.0 * hidden
        )
        vocabulary = self.vocabularies.get(row["cluster"], USUAL_VOCABULARY)
        return {
            "num_layers": row.figures["num_layers"],
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "num_query_groups": self.number(row, "num_query_groups") or heads,
            "head_width": self.number(row, "head_dim") or hidden / heads,
            "ffn_hidden_size": self.number(row, "ffn_hidden_size") or usual_ffn,
            "seq_length": self.number(row, "seq_length") or 0.0,
            "vocab_size": self.number(row, "vocab_size") or vocabulary,
            "gated_mlp": float(gated),
            "tied_embeddings": float(not gated),
        }

    def _gated(self, row: PublishedRow) -> bool:
        """A table of memory does not say: then by the other table, or by the family's name."""
        value = self.number(row, "gated_mlp")
        name = row["model"].casefold()
        return any(family in name for family in GATED_FAMILIES) if value is None else value > 0
