"""Dimensions and their values in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from autotune.schemas.choices import Objective
from autotune.words.quantities import listed
from search_spaces.dimensions import ACCUMULATION, BY_NAME, Scalar, setting_text
from search_spaces.strategy import Strategy

RATE_WORDS: Mapping[Objective, str] = {
    "tokens_per_s": "the rate",
    "tokens_per_s_per_gpu": "the rate per GPU",
    "tokens_per_node_hour": "the tokens per node-hour",
    "tokens_per_joule": "the tokens per joule",
}
COST_WORDS: Mapping[Objective, tuple[str, str, str]] = {
    "tokens_per_s": ("as long", "longer", "less time"),
    "tokens_per_s_per_gpu": ("as long", "longer", "less time"),
    "tokens_per_node_hour": (
        "as many node-hours per token",
        "more node-hours per token",
        "fewer node-hours per token",
    ),
    "tokens_per_joule": (
        "as much energy per token",
        "more energy per token",
        "less energy per token",
    ),
}
"""Objective -> words for an equal, a higher and a lower cost."""

FEW = 3
"""Maximum differences listed when two strategies are compared."""


def dimension_name(dimension: str) -> str:
    definition = BY_NAME.get(dimension)
    return dimension if definition is None else definition.words or definition.short


def dimension_head(dimension: str) -> str:
    definition = BY_NAME.get(dimension)
    return dimension if definition is None else definition.head


def value_words(dimension: str, value: Scalar) -> str:
    head, middle, tail = _value_parts(dimension, value)
    return f"{head}{middle}{tail}"


def _value_parts(dimension: str, value: Scalar) -> tuple[str, str, str]:
    definition = BY_NAME.get(dimension)
    if definition is None:
        return f"{dimension} ", setting_text(value), ""
    if definition.is_switch:
        return "", f"{'with' if value else 'without'} {definition.words}", ""
    if definition.noun:
        noun = definition.noun.removesuffix("s") if value == 1 else definition.noun
        return "", "no" if value == definition.neutral else str(value), f" {noun}"
    return "" if definition.is_named else f"{definition.short} ", str(value), ""


def any_value_words(dimension: str, values: Sequence[Scalar]) -> str:
    parts = [_value_parts(dimension, value) for value in values]
    middles = [middle for _, middle, _ in parts]
    return f"{parts[0][0]}{listed(middles, last='or')}{parts[-1][2]}"


def with_values_words(values: Mapping[str, Scalar], *more: str) -> str:
    words = [value_words(name, value).removeprefix("with ") for name, value in values.items()]
    phrase = listed([*words, *more])
    return phrase if phrase.startswith("without ") else f"with {phrase}"


def differences_of(strategy: Strategy, other: Strategy, *, among: Collection[Strategy] = ()) -> str:
    """Return how a strategy differs from another: `TP 8 · PP 4`; GAS only if nothing else differs.

    Args:
        among: other strategies described the same way; more differences are listed if one of them
            shares the FEW.
    """
    every = dict.fromkeys((*strategy.dimensions, *other.dimensions))
    differing = [name for name in every if strategy.value(name) != other.value(name)]
    telling = [name for name in differing if name != ACCUMULATION] or differing
    alike = [each for each in among if each != strategy]
    words: list[str] = []
    for name in telling:
        alike = [each for each in alike if each.value(name) == strategy.value(name)]
        words.append(value_words(name, strategy.value(name)))
        if len(words) >= FEW and not alike:
            break
    return " · ".join(words)


def capitalised(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def percent(share: float) -> str:
    size = 100.0 * abs(share)
    return f"{size:.0f} %" if size >= 1.95 else f"{size:.1f} %"


def gibibytes(gib: float) -> str:
    return f"{gib:.0f} GiB" if gib >= 99.5 else f"{gib:.3g} GiB"
