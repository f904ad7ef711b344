"""Checks of `autotune doctor`: this machine, Slurm, a cluster profile, a node.

This module has their result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What a check found, and what to do about it.

    Attributes:
        name: what was checked.
        status: `fail` prevents the service or trials from working, `warn` does not.
        found: the current state.
        advice: what to do; empty if nothing.
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
