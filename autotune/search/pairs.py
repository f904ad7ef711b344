"""Layouts measured on few nodes and on all of theirs: does the projection hold?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.calibration import Calibration
from autotune.calibration.calibration import Z
from autotune.calibration.observations import columns_of
from autotune.calibration.projection import REPEATS, projected
from autotune.search.trial import SearchTrial
from search_spaces.transformer import Transformer

Pair = tuple[SearchTrial, SearchTrial]
"""Narrow and wide, both timed."""


@dataclass(frozen=True, kw_only=True)
class Projections:
    """Measured full times of pairs against those projected from narrow ones.

    Attributes:
        count: number of pairs.
        error: expected logarithm of measured over projected time of another layout.
        deviations: mean of the same over the pairs, in standard deviations; 0 without any.
        ratio: measured over projected time, geometric mean of the pairs.
    """

    count: int = 0
    error: float = 0.0
    deviations: float = 0.0
    ratio: float = 1.0

    @classmethod
    def of(
        cls, pairs: Sequence[Pair], calibration: Calibration, transformer: Transformer
    ) -> Projections:
        """Args:
        calibration: on trials of the machine, the narrow ones among them and the wide ones not.
        transformer: with all layers.
        """
        narrow, wide = (
            columns_of([trial.run(transformer) for trial in each], calibration.machine)
            for each in zip(*pairs, strict=True)
        )
        log_times = np.log([[trial.iteration_time_s or 1.0 for trial in pair] for pair in pairs])
        mean, variance = projected(
            calibration.time, narrow=narrow, wide=wide, log_time=log_times[:, 0]
        )
        errors = log_times[:, 1] - mean
        # What the formulas get wrong of a change of width they get wrong alike for all layouts.
        alike = len(pairs) * float(np.mean(variance) - REPEATS**2)
        return cls(
            count=len(pairs),
            error=float(np.mean(errors)) * alike / (alike + REPEATS**2),
            deviations=float(np.mean(errors / np.sqrt(variance))),
            ratio=float(np.exp(np.mean(errors))),
        )

    @property
    def contradicted(self) -> bool:
        """Return whether the measured times lie outside the 80 % interval of the projections."""
        return abs(self.deviations) > Z


def pairs_of(trials: Sequence[SearchTrial]) -> list[Pair]:
    """Return the strategies that were timed both ways."""
    timed = [trial for trial in trials if trial.state == "ok"]
    wide = {trial.strategy: trial for trial in timed if trial.stands_for is None}
    return [
        (trial, wide[trial.full])
        for trial in timed
        if trial.stands_for is not None and trial.full in wide
    ]
