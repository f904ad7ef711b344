"""The decoder-only transformer that trials train: like GPT-3, or like Llama without biases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from evaluators.trainer.attention import Attention, recomputed
from evaluators.trainer.experts import experts_of
from evaluators.trainer.layers import (
    STANDARD_DEVIATION,
    Embedding,
    FeedForward,
    Normalization,
    Plan,
    cross_entropy,
)
from search_spaces.transformer import Transformer


class Positions(nn.Module):
    """Learned positions, added to the embedded tokens."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        shape = (plan.transformer.seq_length, plan.transformer.hidden_size)
        self.weight = plan.build.whole("positions", shape, std=STANDARD_DEVIATION)
        self.first, self.last = plan.context.share(plan.transformer.seq_length)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight[self.first : self.last]


class Block(nn.Module):
    """One layer: attention, then an MLP or experts, each after a norm and added to its input."""

    def __init__(self, plan: Plan, index: int) -> None:
        super().__init__()
        self.recompute = plan.strategy.activation_checkpointing == "full"
        self.attention_norm = Normalization(plan)
        window = window_of(plan.transformer, index)
        self.attention = Attention(plan, f"layer {index}.attention", window=window)
        self.mlp_norm = Normalization(plan)
        self.mlp = _mlp(plan, index)

    def forward(self, x: Tensor) -> Tensor:
        return recomputed(self._layer, x) if self.recompute else self._layer(x)

    def _layer(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))  # type: ignore[no-any-return]


def _mlp(plan: Plan, index: int) -> nn.Module:
    experts, name = plan.transformer.experts, f"layer {index}.mlp"
    if experts is None or index < experts.dense_layers:
        return FeedForward(plan, name, width=plan.transformer.ffn_hidden_size)
    return experts_of(plan, experts, name)


def window_of(transformer: Transformer, index: int) -> int | None:
    """Return the number of tokens that a layer attends to; None: all. Windowed layers are spread
    evenly."""
    layers, windowed = transformer.num_layers, transformer.window_layers
    last = (index + 1) * windowed // layers > index * windowed // layers
    return transformer.attention_window if last else None


Layer = tuple[type[nn.Module], tuple[Any, ...]]


def middle_layers(plan: Plan) -> Sequence[Layer]:
    positions: list[Layer] = [(Positions, (plan,))] if plan.bias else []
    blocks: list[Layer] = [(Block, (plan, i)) for i in range(plan.transformer.num_layers)]
    return [*positions, *blocks, (Normalization, (plan,))]


def loss_of(plan: Plan) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the mean loss of a rank's part of the logits against labels (samples, length)."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        vocabulary = plan.transformer.vocab_size
        return cross_entropy(logits, labels, vocabulary=vocabulary, tensor=plan.build.tensor)

    return loss


class WholeModel(nn.Module):
    """The model of a layout without a pipeline: tokens and labels in, mean loss out."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.embedding = Embedding(plan)
        self.middle = nn.ModuleList([kind(*inputs) for kind, inputs in middle_layers(plan)])
        self.logits = None if plan.transformer.tied_embeddings else Embedding(plan, "logits")
        self.loss = loss_of(plan)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.middle:
            x = layer(x)
        return self.loss((self.logits or self.embedding)(x), labels)
