"""Fold failed trials with the same cause into one row of the trial table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

from autotune.failures import cause_of
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial

FEWEST = 3
"""Minimum number of equal failures to fold."""

NO_FAILURE = frozenset({TrialState.OK, TrialState.PENDING, TrialState.CANCELLED})


@dataclass(frozen=True, kw_only=True)
class FailureFold:
    """Trials that failed alike, newest first. `key` identifies their cause in addresses."""

    key: str
    trials: tuple[Trial, ...]

    @property
    def newest(self) -> Trial:
        return self.trials[0]


def folds(trials: Sequence[Trial]) -> list[FailureFold]:
    """Return the causes with several trials, most frequent first.

    Messages that differ only in numbers are equal.
    """
    causes: dict[str, list[Trial]] = {}
    for trial in reversed(trials):
        if trial.state not in NO_FAILURE:
            key = f"{crc32(cause_of(trial.error or '').encode()):08x}"
            causes.setdefault(f"{trial.state}-{key}", []).append(trial)
    found = [
        FailureFold(key=key, trials=tuple(alike))
        for key, alike in causes.items()
        if len(alike) >= FEWEST
    ]
    return sorted(found, key=lambda fold: -len(fold.trials))
