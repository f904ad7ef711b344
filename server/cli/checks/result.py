"""What came of one thing that `autotune doctor` looked at."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, Self


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What was found, and what to do about it.

    Attributes:
        name: what was looked at.
        status: `fail` keeps the service or the trials from working, `warn` does not.
        found: how it is.
        advice: what to do; empty where it is as it should be.
    """

    name: str
    status: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""

    @classmethod
    def ok(cls, name: str, found: str) -> Self:
        return cls(name=name, status="ok", found=found)

    @classmethod
    def warn(cls, name: str, found: str, *, advice: str) -> Self:
        return cls(name=name, status="warn", found=found, advice=advice)

    @classmethod
    def fail(cls, name: str, found: str, *, advice: str) -> Self:
        return cls(name=name, status="fail", found=found, advice=advice)

    def as_dict(self) -> dict[str, str]:
        return asdict(self)
