"""The exception tree.

    AutotuneError
    ├── ApiError             the service refused: problem+json with status, field, value, valid
    ├── ServiceUnreachable   nothing answered at the service's address
    └── NothingToPropose     every candidate of a space has been tried or ruled out

Bad input is `search_spaces.errors.InvalidInput`, below this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class AutotuneError(Exception):
    """Base of autotune's exceptions, except for bad input."""


class ServiceUnreachable(AutotuneError):
    """Nothing answered at the service's address."""


class NothingToPropose(AutotuneError):
    """Every candidate of a space has been tried or ruled out."""


class ApiError(AutotuneError):
    """The service answered with an RFC 9457 problem.

    Attributes:
        status: the HTTP status.
        problem: the whole problem document: type, title, detail and, for bad input, `errors`,
            a list of {field, value, reason, valid}.
    """

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        super().__init__(str(self.problem.get("detail") or self.problem.get("title") or status))
