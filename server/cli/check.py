"""One thing that `autotune doctor` looked at."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Check:
    """What was found, and what to do about it; a `fail` keeps the service from working."""

    name: str
    status: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)
