"""What is answered to what cannot be done."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from autotune.schemas.wire import Wire


class FieldProblem(Wire):
    field: str
    value: Any = None
    reason: str
    valid: str = ""


class Problem(Wire):
    """RFC 9457 `application/problem+json`."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = Field(default_factory=list)
