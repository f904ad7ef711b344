"""The calibration of one campaign, which search, recommendation, figures and pages share, and
whether projections from few nodes hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from autotune.calibration import Calibration, Observation
from autotune.calibration.calibration import Z
from autotune.calibration.observations import columns_of, time_sample
from autotune.calibration.projection import REPEATS, projected
from autotune.calibration.relevance import FACTORS, discounted, relevance
from autotune.schemas.campaigns import Campaign
from autotune.search.trial import SearchTrial
from search_spaces.dimensions import Scalar
from search_spaces.machine import Machine
from search_spaces.program import USUAL_STATES, StateWidths, Tuning
from search_spaces.space import SearchSpace
from search_spaces.transformer import Transformer

Ended = tuple[SearchTrial, ...]
"""Trials that do not run any more, one for each strategy and what it stands for, as `merged`
returns them."""


@dataclass(frozen=True, kw_only=True)
class CampaignBelief:
    """The cost model fitted to a campaign's trials and to the earlier trials that it started from.

    The fit for a set of trials is cached.

    Attributes:
        transformer: with all layers.
        earlier: observations of other campaigns, with their weights.
        settings: values of the trainer's own dimensions in the space, by name.
        tuning, states: of the trainer, which decide the prior.
    """

    machine: Machine
    transformer: Transformer
    earlier: tuple[Observation, ...] = ()
    settings: tuple[tuple[str, tuple[Scalar, ...]], ...] = ()
    tuning: Tuning = "usual"
    states: StateWidths = USUAL_STATES

    @classmethod
    def over(cls, space: SearchSpace, *, earlier: Sequence[Observation] = ()) -> CampaignBelief:
        """Return the belief of a campaign that searches this space."""
        return cls(
            machine=space.machine,
            transformer=space.transformer,
            earlier=tuple(earlier),
            settings=tuple(space.settings.items()),
            tuning=space.program.tuning,
            states=space.program.states,
        )

    @cached_property
    def calibration(self) -> Callable[[Ended], Calibration]:
        return lru_cache(maxsize=3)(self._fit)

    @cached_property
    def projections(self) -> Callable[[Ended], Projections]:
        return lru_cache(maxsize=2)(self._compare)

    def prior(self) -> Calibration:
        return self.calibration(())

    def _fit(self, ended: Ended) -> Calibration:
        observed = [trial.observation(self.transformer) for trial in ended]
        own = [observation for observation in observed if observation is not None]
        if not own or not self.earlier:
            return self._calibrated([*self.earlier, *own])
        times = time_sample(own, self.machine)
        factor = relevance(lambda each: self._given[each].time, times)
        return self._calibrated([*discounted(self.earlier, factor), *own])

    @cached_property
    def _given(self) -> Mapping[float, Calibration]:
        """Factor on the weights of the earlier trials -> the calibration on no other trials."""
        return {each: self._calibrated(discounted(self.earlier, each)) for each in FACTORS}

    def _calibrated(self, observations: Sequence[Observation]) -> Calibration:
        return Calibration.of(
            self.machine,
            observations,
            settings=dict(self.settings),
            tuning=self.tuning,
            states=self.states,
        )

    def _compare(self, ended: Ended) -> Projections:
        pairs = pairs_of(ended)
        if not pairs:
            return Projections()
        both = {wide for _, wide in pairs}
        before = self.calibration(tuple(trial for trial in ended if trial not in both))
        return Projections.of(pairs, before, self.transformer)


def belief_without_start(campaign: Campaign) -> CampaignBelief:
    return _without_start(campaign.machine, campaign.model)


@lru_cache(maxsize=8)
def _without_start(machine: Machine, transformer: Transformer) -> CampaignBelief:
    return CampaignBelief(machine=machine, transformer=transformer)


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
