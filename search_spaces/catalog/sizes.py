"""Conventional shapes for a bare size such as "13B"."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np

from search_spaces.errors import InvalidInput
from search_spaces.transformer import Transformer

SIZE = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([MBT])\s*", re.IGNORECASE)
UNITS = {"M": 1e6, "B": 1e9, "T": 1e12}
SMALLEST, LARGEST = 20e6, 20e12  # parameters; nothing conventional lies beyond

# Hidden size over layers, by parameters: GPT-3's family (Brown et al. 2020, table 2.1) up to 175B,
# Megatron's 530B and 1T (Narayanan et al. 2021, table 1) beyond.
TREND_PARAMETERS = (125e6, 350e6, 1.3e9, 6.7e9, 175e9, 530e9, 1e12)
TREND_ASPECT = (64.0, 43.0, 85.0, 128.0, 128.0, 195.0, 200.0)

TOLERANCE = 0.05  # of the asked parameters: beyond it a shape quickly becomes a last resort
SEQ_LENGTH, VOCAB_SIZE = 2048, 51200  # the study's
WIDE_HEAD_FROM = 2048  # hidden size from which a head is 128 wide, not 64, as in GPT-3


def parameters_of_size(text: str) -> float | None:
    """Return the parameters that "13B", "1.3b", "350M" or "1T" ask for; None for any other text.

    Raises:
        InvalidInput: field `model`, for a size beyond what is conventional.
    """
    match = SIZE.fullmatch(text)
    if match is None:
        return None
    parameters = float(match[1]) * UNITS[match[2].upper()]
    if not SMALLEST <= parameters <= LARGEST:
        raise InvalidInput("model", text, "no conventional shape has this size", valid="20M to 20T")
    return parameters


def conventional_shape(parameters: float, *, name: str) -> Transformer:
    """Return the GPT-3-like shape that comes nearest, sequence 2048, vocabulary 51200.

    Weighs the distance from the asked size, from the family's trend of width over depth, and how
    well heads and layers divide by the usual parallel degrees. Known members come out as they
    are known: 13B has 40 layers of 5120, 175B 96 of 12288, 1T 128 of 25600.
    """
    candidates = _candidates(parameters, name=name)
    return min(candidates, key=lambda shape: _strangeness(shape, parameters))


def _candidates(parameters: float, *, name: str) -> Iterator[Transformer]:
    """Yield shapes about the trend: layers even, hidden a multiple of 128 and near the asked
    size."""
    embeddings = VOCAB_SIZE + SEQ_LENGTH
    expected_layers = (parameters / (12 * _trend(parameters) ** 2)) ** (1 / 3)
    fewest = max(4, int(expected_layers / 3) // 2 * 2)
    for layers in range(fewest, int(expected_layers * 2) + 9, 2):
        # The root of `12 L h^2 + (V + s) h = parameters`.
        root = math.sqrt(embeddings**2 + 48 * layers * parameters)
        blocks = (root - embeddings) / (24 * layers) / 128
        for block in range(max(1, math.floor(blocks * 0.975)), math.ceil(blocks * 1.025) + 1):
            hidden = 128 * block
            yield Transformer.gpt(
                name,
                num_layers=layers,
                hidden_size=hidden,
                num_attention_heads=hidden // (128 if hidden >= WIDE_HEAD_FROM else 64),
                seq_length=SEQ_LENGTH,
                vocab_size=VOCAB_SIZE,
            )


def _trend(parameters: float) -> float:
    return float(np.interp(math.log(parameters), np.log(TREND_PARAMETERS), TREND_ASPECT))


def _strangeness(shape: Transformer, parameters: float) -> float:
    """Return how far a shape is from what one would expect; the weights make known members win."""
    off_size = math.log(shape.parameters / parameters) / TOLERANCE
    off_trend = abs(math.log(shape.hidden_size / shape.num_layers / _trend(parameters)))
    heads, layers = shape.num_attention_heads, shape.num_layers
    by_heads = 0.1 * (heads % 8 > 0) + 0.3 * (heads % 4 > 0)
    by_layers = 0.1 * (layers % 8 > 0) + 0.2 * (layers % 4 > 0)
    return 0.25 * off_size**4 + 0.5 * off_trend + by_heads + by_layers
