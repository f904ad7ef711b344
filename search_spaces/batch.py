"""The global batch size: fixed, bounded, or free."""

from __future__ import annotations

from dataclasses import dataclass

from search_spaces.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class GlobalBatch:
    """Bounds of the samples of one optimizer step; None leaves that side free, equal ones fix it.

    The global batch decides how a model converges, so that a faster layout at another batch is not
    simply better.
    """

    minimum: int | None = None
    maximum: int | None = None

    def __post_init__(self) -> None:
        """Raise InvalidInput for bounds that nothing lies between."""
        for bound in (self.minimum, self.maximum):
            if bound is not None and bound < 1:
                raise InvalidInput(
                    "global_batch_size", bound, "must be positive", valid="1 or more"
                )
        if None not in (self.minimum, self.maximum) and self.least > self.most:
            reason = f"the minimum {self.minimum} lies above the maximum {self.maximum}"
            raise InvalidInput("global_batch_size", self.minimum, reason)

    @classmethod
    def of(cls, samples: int) -> GlobalBatch:
        return cls(minimum=samples, maximum=samples)

    @property
    def fixed(self) -> int | None:
        return self.minimum if self.minimum == self.maximum else None

    @property
    def least(self) -> int:
        return self.minimum or 1

    @property
    def most(self) -> float:
        return self.maximum if self.maximum is not None else float("inf")

    def __str__(self) -> str:
        if self.fixed is not None:
            return f"{self.fixed}"
        if self.minimum is None and self.maximum is None:
            return "any"
        upper = f" to {self.maximum}" if self.maximum is not None else " or more"
        return f"{self.least}{upper}"
