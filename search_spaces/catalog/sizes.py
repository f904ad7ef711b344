"""The shape that a bare size such as "13B" stands for: a known model's, or a conventional one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

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

TOLERANCE = 0.05  # of the requested parameters: beyond it a shape is a last resort
NEAR = 0.03  # a size this close to one by which a model is known means that model
SEQ_LENGTH, VOCAB_SIZE = 2048, 51200  # the study's
SMALL = 1e9  # below it a step of four layers would miss the requested size
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


def known_size(parameters: float, known: Mapping[float, Transformer]) -> Transformer | None:
    """Return the published model of this size, or of one very close to it; None without one.

    Args:
        known: the parameters that a size names -> the model, which may have somewhat more or fewer:
            Llama 2's "7B" has 6.74.
    """
    size = min(known, key=lambda size: abs(math.log(size / parameters)))
    model = known[size]
    near = abs(size / parameters - 1) <= NEAR
    return model if near and abs(model.parameters / parameters - 1) <= TOLERANCE else None


def conventional_shape(parameters: float, *, name: str) -> Transformer:
    """Return the GPT-3-like shape that comes nearest, sequence 2048, vocabulary 51200.

    Weighs the distance from the size and from the family's trend of width over depth, and how well
    heads and layers divide by the usual parallel degrees.
    """
    candidates = list(_candidates(parameters, name=name))
    close = [c for c in candidates if abs(c.parameters / parameters - 1) <= TOLERANCE]
    return min(close or candidates, key=lambda shape: _strangeness(shape, parameters))


def _candidates(parameters: float, *, name: str) -> Iterator[Transformer]:
    embeddings = VOCAB_SIZE + SEQ_LENGTH
    expected_layers = (parameters / (12 * _trend(parameters) ** 2)) ** (1 / 3)
    step = 4 if parameters >= SMALL else 2
    fewest = max(4, int(expected_layers / 3) // step * step)
    for layers in range(fewest, int(expected_layers * 2) + 9, step):
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
    off_size = math.log(shape.parameters / parameters) / TOLERANCE
    off_trend = abs(math.log(shape.hidden_size / shape.num_layers / _trend(parameters)))
    return (
        0.25 * off_size**4
        + 0.5 * off_trend
        + _indivisible(shape.num_attention_heads)
        + _indivisible(shape.num_layers)
    )


def _indivisible(count: int) -> float:
    return 0.05 * (count % 16 > 0) + 0.15 * (count % 8 > 0) + 0.6 * (count % 4 > 0)
