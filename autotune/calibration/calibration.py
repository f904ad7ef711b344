"""The calibrated cost model of one machine and software stack, and its forecasts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import scipy

from autotune.calibration.dominance import Dominance
from autotune.calibration.mixture import Mixture
from autotune.calibration.observations import Observation, memory_sample, time_sample
from autotune.calibration.power import PowerScale
from autotune.calibration.quantity import Quantity
from autotune.calibration.sample import Sample
from autotune.calibration.settings import own_levels
from autotune.cost_model.columns import Array, Columns, Mask
from autotune.cost_model.energy import iteration_energy_joule
from autotune.cost_model.estimate import costs
from autotune.cost_model.memory import allocated_memory
from autotune.cost_model.parameters import Parameters, prior_spread
from autotune.cost_model.strategies import Strategies, total
from search_spaces.dimensions import Scalar
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.program import USUAL_STATES, StateWidths, Tuning
from search_spaces.space import SearchSpace
from search_spaces.transformer import Transformer

COVERAGE = 0.8
"""Nominal coverage of forecast intervals."""

Z = 1.2816
"""Half-width, in standard deviations, of the central interval that holds COVERAGE of a normal
distribution."""


MACHINE_FIGURES = (
    "name",
    "gpu",
    "gpus_per_node",
    "memory_gib",
    "peak_tflops",
    "memory_bandwidth_gb_per_s",
    "intra_node_gb_per_s",
    "inter_node_gb_per_s",
)
"""The machine figures that time and memory depend on. A calibration is valid for every machine with
the same ones."""


@dataclass(frozen=True, kw_only=True)
class FittedConstant:
    """One constant of the cost model before and after the observations.

    Spreads are standard deviations of its logarithm.
    """

    name: str
    prior: float
    value: float
    prior_spread: float
    spread: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """Medians and 80 % intervals of measurements; arrays have shape (n,).

    Attributes:
        iteration_time_s: seconds of one optimizer step; the sum of `time_parts_s`.
        memory_gib: memory that the fullest rank needs; the sum of `memory_parts_gib`.
        allocated_gib, reserved_gib: peaks that torch's allocator reports of that rank.
        fit_probability: probability that the strategy fits into memory.
        energy_joule: joules of one optimizer step on all nodes, hosts included, from the median
            time and the measured power; None if the machine's power figures are unknown.
    """

    iteration_time_s: Array
    iteration_time_low_s: Array
    iteration_time_high_s: Array
    memory_gib: Array
    memory_low_gib: Array
    memory_high_gib: Array
    allocated_gib: Array
    reserved_gib: Array
    fit_probability: Array
    energy_joule: Array | None
    time_parts_s: Mapping[str, Array]
    memory_parts_gib: Mapping[str, Array]

    def of_one(self, row: int) -> dict[str, Any]:
        """Return the figures of one strategy by name, but for the probability and energy."""
        names = (
            "iteration_time_s",
            "iteration_time_low_s",
            "iteration_time_high_s",
            "memory_gib",
            "memory_low_gib",
            "memory_high_gib",
        )
        return {
            **{name: float(getattr(self, name)[row]) for name in names},
            "time_parts_s": {k: float(part[row]) for k, part in self.time_parts_s.items()},
            "memory_parts_gib": {k: float(part[row]) for k, part in self.memory_parts_gib.items()},
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """A calibrated cost model, valid for any model on `machine` under `software`.

    Without observations it holds the priors for this kind of machine, with their uncertainty.
    """

    machine: Machine
    software: str
    observations: tuple[Observation, ...]
    time: Mixture
    memory: Mixture
    memory_sample: Sample

    @cached_property
    def power(self) -> PowerScale:
        return PowerScale.of(self.machine, self.observations, self.parameters)

    @classmethod
    def of(
        cls,
        machine: Machine,
        observations: Sequence[Observation] = (),
        *,
        software: str = "",
        settings: Mapping[str, Sequence[Scalar]] | None = None,
        tuning: Tuning = "usual",
        states: StateWidths = USUAL_STATES,
    ) -> Calibration:
        """Fit to trials of one machine and software stack; the trials may be of any models.

        Args:
            software: name of the stack that the trials ran on.
            settings: trainer-defined dimension -> values to predict, besides those of the trials.
            tuning, states: how well the trainer is tuned, and its bytes per parameter; they set the
                priors.
        """
        prior = Parameters.default(machine, tuning, states)
        declared = frozenset({"gradient_bytes"} if states.gradient_bytes is not None else ())
        times, sample = (time_sample(observations, machine), memory_sample(observations, machine))
        own = own_levels(settings or {}, [times.columns, sample.columns])
        timed, remembered = (
            Quantity(machine=machine, prior=prior, of_memory=of_memory, own=own, declared=declared)
            for of_memory in (False, True)
        )
        return cls(
            machine=machine,
            software=software,
            observations=tuple(observations),
            time=Mixture.of(timed, times),
            memory=Mixture.of(remembered, sample),
            memory_sample=sample,
        )

    @property
    def parameters(self) -> Parameters:
        """The constants at their most probable values."""
        time, memory = self.time.best, self.memory.best
        fitted = memory.quantity.parameters(memory.z)
        remembered = {name: getattr(fitted, name) for name in memory.quantity.names}
        return replace(time.quantity.parameters(time.z), **remembered)

    @property
    def constants(self) -> Iterator[FittedConstant]:
        """Every constant of time and memory that can be calibrated on this machine."""
        for mixture in (self.time, self.memory):
            posterior = mixture.best
            quantity, deviations = posterior.quantity, np.sqrt(np.diag(posterior.covariance))
            fitted = quantity.parameters(posterior.z)
            for name, deviation in zip(quantity.names, deviations, strict=False):
                spread = prior_spread(name)
                yield FittedConstant(
                    name=name,
                    prior=float(getattr(quantity.prior, name)),
                    value=float(getattr(fitted, name)),
                    prior_spread=spread,
                    spread=spread * float(deviation),
                )

    def forecast(self, transformer: Transformer, lattice: Lattice) -> Forecast:
        """Forecast time, memory and energy of each strategy of `lattice`."""
        columns = Columns.of(transformer, lattice)
        times, sizes = costs(Strategies(columns, self.machine, self.parameters))
        time, _, time_variance = self.time.predict(columns)
        memory, _, memory_variance = self.memory.predict(columns, labelled=True)
        memory = memory + np.log(float(self.parameters.usable_memory))
        time_s, size_gib = np.exp(time), np.exp(memory)
        time_factor, size_factor = (
            np.exp(Z * np.sqrt(v)) for v in (time_variance, memory_variance)
        )
        parts = _adding_up(times, time_s)
        return Forecast(
            iteration_time_s=time_s,
            iteration_time_low_s=time_s / time_factor,
            iteration_time_high_s=time_s * time_factor,
            memory_gib=size_gib,
            memory_low_gib=size_gib / size_factor,
            memory_high_gib=size_gib * size_factor,
            allocated_gib=allocated_memory(sizes) * size_gib / total(sizes),
            reserved_gib=np.exp(self.memory.mean(columns)),
            fit_probability=self.fit_probability(columns),
            energy_joule=iteration_energy_joule(
                self.machine,
                num_nodes=lattice["num_nodes"].astype(np.float64),
                time_parts_s=parts,
                power_factor=self.power.factor,
            ),
            time_parts_s=parts,
            memory_parts_gib=_adding_up(sizes, size_gib),
        )

    def needed_gib(self, columns: Columns) -> Array:
        """Return the memory that each strategy needs in GiB, shape (n,)."""
        usable = float(self.parameters.usable_memory)
        return usable * np.exp(self.memory.mean(columns, labelled=True))

    def draws_of_fitting(
        self,
        columns: Columns,
        *,
        count: int,
        generator: np.random.Generator,
        headroom_gib: float = 0.0,
    ) -> Mask:
        """Return joint draws of whether each strategy fits into memory, shape (count, n). Errors of
        similar strategies are correlated.

        Args:
            headroom_gib: memory that must stay free.
        """
        need = self.memory.draws(columns, count=count, generator=generator, labelled=True)
        edge = generator.normal(0.0, self.memory_sample.edge, size=need.shape)
        fits = need + edge <= self.log_limit(headroom_gib)
        return self._dominance(columns, headroom_gib).drawn(fits, generator)

    def fit_probability(self, columns: Columns, *, headroom_gib: float = 0.0) -> Array:
        """Return the probability that each strategy fits into memory, shape (n,).

        Args:
            headroom_gib: memory that must stay free.
        """
        mean, _, variance = self.memory.predict(columns, labelled=True)
        margin = self.log_limit(headroom_gib) - mean
        probability = np.asarray(
            scipy.special.ndtr(margin / np.sqrt(variance + self.memory_sample.edge**2))
        )
        return self._dominance(columns, headroom_gib).bounded(probability)

    def log_limit(self, headroom_gib: float) -> float:
        """Return the logarithm of the memory limit in GiB, unusable memory included: the whole
        device, or less if a headroom must stay free above the peak."""
        whole = self.machine.memory_gib
        if not headroom_gib:
            return float(np.log(whole))
        peak = whole - headroom_gib
        return float(np.log(min(whole, peak / float(self.parameters.usable_memory))))

    def _dominance(self, columns: Columns, headroom_gib: float) -> Dominance:
        return Dominance.of(
            columns,
            self.memory_sample,
            memory_gib=self.machine.memory_gib,
            headroom_gib=headroom_gib,
        )


def _adding_up(parts: dict[str, Array], whole: Array) -> dict[str, Array]:
    scale = whole / total(parts)
    return {name: part * scale for name, part in parts.items()}


def machine_figures(machine: Machine) -> dict[str, Any]:
    """Return the machine figures that a calibration depends on, by name; rare ones only if the
    machine has them."""
    rare = {"fast_domain": machine.fast_domain, "peaks_tflops": dict(machine.peaks_tflops)}
    common = {name: getattr(machine, name) for name in MACHINE_FIGURES}
    return common | {name: figure for name, figure in rare.items() if figure}


def prior_of(space: SearchSpace) -> Calibration:
    """Return what is known of a space's machine and trainer before any trial."""
    return general_knowledge(space.machine, space.program.tuning, space.program.states)


@lru_cache(maxsize=32)
def general_knowledge(
    machine: Machine, tuning: Tuning = "usual", states: StateWidths = USUAL_STATES
) -> Calibration:
    return Calibration.of(machine, tuning=tuning, states=states)
