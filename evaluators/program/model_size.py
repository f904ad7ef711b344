"""Recognise the number of model parameters that a trainer prints, in any wording."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from autotune.trained_model import agree
from search_spaces.transformer import Transformer

AGREES = 0.1
"""Maximum relative difference of a size: padding, biases and positions may or may not be counted. A
number read by an adapter must agree as closely as that of a trial."""
LEAST = 1000
"""Smaller numbers count something else."""

_NUMBER = r"(?P<number>\d[\d,_]*(?:\.\d+)?)"
_FACTOR = r"(?:\s?(?P<factor>[KMBGT]|thousand|million|billion)\b)?"
_AFTER = re.compile(
    rf"param(?:eter)?s?\b(?P<between>[^0-9:=]{{0,60}})[:=]\s*{_NUMBER}{_FACTOR}", re.IGNORECASE
)
_BEFORE = re.compile(
    rf"(?<![\w.]){_NUMBER}{_FACTOR}\s+(?:(?:total|trainable|model)\s+)?param(?:eter)?s\b",
    re.IGNORECASE,
)
_OF_A_PART = re.compile(r"persistent|offload|bucket|group|frozen|non-trainable", re.IGNORECASE)
_IN_PARENTHESES = re.compile(r"\([^)]*\)")
_FACTORS = {"": 1.0, "k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6}
_FACTORS |= {"b": 1e9, "g": 1e9, "billion": 1e9, "t": 1e12}
_WORDS = {"in millions": 1e6, "in billions": 1e9}


@dataclass(frozen=True, kw_only=True)
class PrintedModelSize:
    """A printed number of parameters.

    Attributes:
        text: as printed, with adjacent words.
        rounded: half a unit of its last digit.
    """

    text: str
    parameters: float
    rounded: float

    def fits(self, parameters: int) -> bool:
        """Return whether this may be a model with this number of parameters."""
        return abs(self.parameters - parameters) <= AGREES * parameters + self.rounded


def size_judgement(
    lines: Iterable[str], told: float | None, *, model: Transformer
) -> tuple[bool, str] | None:
    """Return whether the trained model has the size of the requested one, with both sizes in words;
    None if no size was printed.

    Args:
        lines: lines that the trainer prints, searched if `told`, the size read by its adapter, is
            None.
    """
    size = model.trained_parameters
    sizes = printed_sizes(lines) if told is None else []
    if told is not None:
        words, good = f"{told:,.0f} parameters", agree(told, size)
    elif sizes:
        near = min(sizes, key=lambda each: abs(each.parameters - size))
        words, good = near.text, near.fits(size)
    else:
        return None
    words = f'the trainer says "{words}", and {model.name} has {size:,}'
    return good, words if good else f"{words}; --model names the one that it trains"


def printed_sizes(lines: Iterable[str]) -> list[PrintedModelSize]:
    """Return the distinct sizes in lines, including those of parts of a model."""
    found = (_size(line) for line in lines if "aram" in line and not _OF_A_PART.search(line))
    return list(dict.fromkeys(size for size in found if size and size.parameters >= LEAST))


def _size(line: str) -> PrintedModelSize | None:
    plain = _IN_PARENTHESES.sub("", line)
    match = _AFTER.search(plain) or _BEFORE.search(plain)
    if match is None:
        return None
    number, factor = match["number"].rstrip(",_"), match["factor"] or ""
    scale = _FACTORS[factor.lower()]
    between = (match.groupdict().get("between") or "").lower()
    scale *= next((times for words, times in _WORDS.items() if words in between), 1.0)
    digits = len(number.partition(".")[2])
    return PrintedModelSize(
        text=match[0].strip(),
        parameters=float(number.replace(",", "").replace("_", "")) * scale,
        rounded=scale / 2 / 10**digits,
    )
