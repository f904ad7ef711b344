"""What is known of each kind of GPU, by its name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

_DEFAULTS: Mapping[str, Any] = {"peak_tflops": None, "dies": 1}


def gpu_kind(name: str) -> Mapping[str, Any]:
    """Return the first entry of `gpus.toml` that a GPU's name, or its PCI device, belongs to; the
    last one takes every name."""
    return next({**_DEFAULTS, **kind} for kind in _kinds() if _takes(kind, name.casefold()))


@cache
def _kinds() -> list[dict[str, Any]]:
    kinds: list[dict[str, Any]] = tomllib.loads(
        (files(__package__) / "gpus.toml").read_text("utf-8")
    )["kind"]
    return kinds


def _takes(kind: Mapping[str, Any], name: str) -> bool:
    return any(part.casefold() in name for part in (kind["holds"], *kind.get("devices", ())))
