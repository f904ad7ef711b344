"""How a user writes values: one grammar for the command line, the form and the client.

A dimension is `auto`, `4`, `1,2,4`, `4..20 step 4` or `4:20:4`; a switch `on` or `off` (also true,
yes, false, no); a global batch `640`, `512:1024`, `512..` or `:1024`; a number of tokens `300B`,
`1.4T` or `300e9`; knobs `all` or `overlap,reduce_bucket`. What is no text is left as it is.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from pydantic_core import PydanticCustomError

DIMENSION_FORMS = "auto, one value 4, a list 1,2,4, a range 4..20, or 4..20 step 4 (4:20:4)"
BATCH_FORMS = "one size 640, bounds 512..1024 (or 512:1024), or one of them 512: or :1024"
SETTING_FORMS = "overlap=on,off bucket=50, with a space between two dimensions"
TOKEN_FORMS = "300B, 1.4T or 300e9"
SWITCH_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
LETTERS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}

_RANGE = re.compile(r"(\d+)\s*(?:\.\.|:)\s*(\d+)(?:\s*(?::|step)\s*(\d+))?", re.IGNORECASE)
_BOUNDS = re.compile(r"(\d*)\s*(?:\.\.|:)\s*(\d*)")
_DECIMAL = re.compile(r"[-+]?(?:\d{1,18}\.?\d*|\.\d+)(?:[eE][-+]?\d{1,2})?")
_TOKENS = re.compile(r"([\d,]*\.?\d+(?:e[+-]?\d+)?)\s*([KMBT]?)", re.IGNORECASE)


def dimension(value: Any) -> Any:
    """Return what a text says of a dimension of numbers or names: `auto`, a scalar, a list, or
    `{"minimum", "maximum", "step"}`; raises PydanticCustomError."""
    return _dimension(value, words={})


def switch(value: Any) -> Any:
    """Return what a text says of a dimension that is on or off; raises PydanticCustomError."""
    return _dimension(value, words=SWITCH_WORDS)


def setting(value: Any) -> Any:
    """Return what a text says of a dimension of a trainer's own: a switch, a number or a text, or a
    list of these."""
    if not isinstance(value, str):
        return value
    read = [_setting(part.strip()) for part in value.split(",")]
    return read if len(read) > 1 else read[0]


def settings(value: Any) -> Any:
    """Return what a text says of several, `overlap=on bucket=50,100`; raises
    PydanticCustomError."""
    if not isinstance(value, str):
        return value
    texts: dict[str, str] = {}
    for part in re.split(r"[;\s]+", value.strip()):
        name, equals, values = part.partition("=")
        if not name or not equals or not values or name in texts:
            _refuse("these are not dimensions with their values, each once", SETTING_FORMS)
        texts[name] = values
    return texts


def knobs(value: Any) -> Any:
    """Return the names in a text, `overlap,reduce_bucket`, or `all` if it is one of them; `none` is
    no name."""
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if names in (["none"], [""]):
        return []
    return "all" if isinstance(names, list) and "all" in names else names


def _setting(text: str) -> bool | int | float | str:
    if text.lower() in SWITCH_WORDS:
        return SWITCH_WORDS[text.lower()]
    if re.fullmatch(r"[-+]?\d{1,18}", text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else text


def _dimension(value: Any, *, words: dict[str, bool]) -> Any:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not words and (".." in text or ":" in text):
        return _range(text)
    parts = [part.strip() for part in text.split(",")]
    if "" in parts:
        _refuse("this is no choice of values", DIMENSION_FORMS)
    read = [
        int(part) if re.fullmatch(r"-?\d+", part) else words.get(part.lower(), part)
        for part in parts
    ]
    if words and text != "auto" and not all(isinstance(each, bool) for each in read):
        _refuse("this is a switch", "on or off")
    return read if len(read) > 1 else read[0]


def _range(text: str) -> dict[str, int]:
    found = _RANGE.fullmatch(text)
    if found is None:
        _refuse("this is no range of whole numbers", DIMENSION_FORMS)
    minimum, maximum, step = (int(number) for number in found.groups(default="1"))
    if not minimum or not maximum or not step:
        _refuse("the numbers of a range are greater than 0", "0 in a list, such as 0,1,2")
    if minimum > maximum:
        _refuse(f"the minimum {minimum} lies above the maximum {maximum}", DIMENSION_FORMS)
    return {"minimum": minimum, "maximum": maximum, "step": step}


def global_batch(value: Any) -> Any:
    """Return what a text says of a global batch: a size, or `{"minimum", "maximum"}`; raises
    PydanticCustomError."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.isdigit():
        return int(text)
    found = _BOUNDS.fullmatch(text)
    if found is None or not any(found.groups()):
        _refuse("this is no number of samples", BATCH_FORMS)
    low, high = (int(bound) if bound else None for bound in found.groups())
    if 0 in (low, high) or (low and high and low > high):
        _refuse("the minimum is greater than 0 and at most the maximum", BATCH_FORMS)
    return {"minimum": low, "maximum": high}


def tokens(value: Any) -> Any:
    """Return the number that a text such as `300B` says; raises PydanticCustomError."""
    if not isinstance(value, str):
        return value
    found = _TOKENS.fullmatch(value.strip())
    if found is None:
        _refuse("this is no number of tokens", TOKEN_FORMS)
    number, letter = found.groups()
    return float(number.replace(",", "")) * LETTERS[letter.upper()]


def _refuse(reason: str, valid: str) -> NoReturn:
    raise PydanticCustomError("notation", "{reason}", {"reason": reason, "expected": valid})
