"""What is typed on the command line, as the wire models take it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from autotune.schemas import BatchBounds, Dimension, Range
from autotune.validation import validated
from search_spaces.errors import InvalidInput

WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
DIMENSION_FORMS = "auto, one value 4, a list 1,2,4, a range 4:20 or with a step 4:20:4"
BATCH_FORMS = "one size 640, bounds 512:1024, or one of them 512: or :1024"


def named_or_file(text: str) -> str | Path:
    """A path where it looks like one (`./m.toml`, `config.json`), else the name as it is."""
    is_path = os.sep in text or text.endswith((".toml", ".json"))
    return Path(text).expanduser() if is_path else text


def dimension(field: str, text: str | None) -> Dimension | None:
    """`auto`, `4`, `1,2,4`, `4:20` or `4:20:4`; raises InvalidInput for anything else."""
    if text is None or text == "auto":
        return text
    if ":" in text:
        return _range(field, text)
    values = [_scalar(part.strip()) for part in text.split(",")]
    if "" in values:
        raise InvalidInput(field, text, "is not a choice of values", valid=DIMENSION_FORMS)
    return values if len(values) > 1 else values[0]


def _range(field: str, text: str) -> Range:
    bounds = text.split(":")
    if not all(bound.isdigit() for bound in bounds) or len(bounds) > 3:
        raise InvalidInput(field, text, "is not a range of whole numbers", valid=DIMENSION_FORMS)
    names = ("minimum", "maximum", "step")
    return validated(Range, dict(zip(names, map(int, bounds), strict=False)))


def _scalar(text: str) -> int | bool | str:
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    digits = text.removeprefix("-")
    return int(text) if digits.isdigit() else text


def global_batch(text: str | None) -> int | BatchBounds | None:
    """`640`, `512:1024`, `512:` or `:1024`; raises InvalidInput for anything else."""
    if text is None:
        return None
    bounds = text.split(":")
    if len(bounds) > 2 or not any(bounds) or not all(b.isdigit() or not b for b in bounds):
        raise InvalidInput(
            "global_batch_size", text, "is not a number of samples", valid=BATCH_FORMS
        )
    if len(bounds) == 1:
        return int(text)
    low, high = (int(bound) if bound else None for bound in bounds)
    return validated(BatchBounds, {"minimum": low, "maximum": high})


def given(**options: Any) -> dict[str, Any]:
    """The options that were given: those that are not None."""
    return {name: value for name, value in options.items() if value is not None}
