"""A trial: what is asked of it, how it stands, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Literal

from autotune.measurement import LONG_ITERATION_S, AccumulationMeasurement
from autotune.schemas import Routing, TrialState
from evaluators.stopping_rule import FEWEST, Verdict, gave_up, out_of_time, verdict
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

TARGET_SPREAD = 0.01
"""Two trials of one strategy differ by about as much, on other nodes or at another time, so a
median that is known better tells no more of the strategy."""

SHARE_FOR_MORE = 0.5
"""Of the time limit: where noise calls for more iterations than the least number, they must not
bring about the timeout of a trial that would else have ended in time."""


@dataclass(frozen=True, kw_only=True)
class TrialProtocol:
    """The way in which a trial measures.

    Attributes:
        warmup_iterations: run at the start, before anything is timed, and left out.
        warmup_accumulation: the GAS at which these run, no more than the least of `accumulations`,
            which it is where None.
        measured_iterations: timed at each GAS value at the least; where the number adapts, two that
            agree are enough of iterations that take LONG_ITERATION_S.
        most_iterations: timed at each GAS value at most, and never fewer than
            `measured_iterations`, which it is where None.
        target_spread: the standard error of the median, as a share of it, at which a GAS value
            is measured well enough.
        give_up_above_s: by GAS value, seconds of an iteration beyond which the trial is not worth
            its time; it is then over, with what it has measured. Empty: it never is.
        accumulations: the GAS values, rising. A trial of the search measures at two, or at the
            strategy's own alone where that is no more than PP; a confirmation at its own alone.
        pipeline_wait: micro-batches that filling and draining the pipeline take, the bubble.
        time_limit_s: wall time of the whole trial, start-up included.
    """

    accumulations: tuple[int, ...]
    warmup_iterations: int = 1
    warmup_accumulation: int | None = None
    measured_iterations: int = 3
    most_iterations: int | None = None
    target_spread: float = TARGET_SPREAD
    give_up_above_s: tuple[float, ...] = ()
    pipeline_wait: float = 0.0
    time_limit_s: float = 1200.0

    @property
    def most(self) -> int:
        """The most iterations that are timed at each GAS value."""
        return max(self.measured_iterations, self.most_iterations or 0)

    @property
    def values(self) -> tuple[int, ...]:
        """The GAS values that are run, in their order: what is measured, and before it that of the
        warm-up where it is another one."""
        first = self.warmup_accumulation
        if not self.warmup_iterations or first is None or first in self.accumulations:
            return self.accumulations
        return (first, *self.accumulations)

    def warmup_at(self, accumulation: int) -> int:
        """Return how many iterations are left out at the beginning of this one of `values`."""
        return self.warmup_iterations if accumulation == self.values[0] else 0

    @property
    def adaptive(self) -> bool:
        """Whether what a trial measures decides how long it goes on."""
        return self.adds_iterations or bool(self.give_up_above_s)

    @property
    def adds_iterations(self) -> bool:
        return self.most > self.measured_iterations

    @property
    def fewest_iterations(self) -> int:
        """Timed at a GAS value in any case, however long they take."""
        least = self.measured_iterations
        return min(least, FEWEST) if self.adds_iterations else least

    @property
    def long_s(self) -> float:
        """Seconds of an iteration from which on two that agree are enough."""
        return LONG_ITERATION_S if self.adds_iterations else inf

    @property
    def time_for_more_s(self) -> float:
        """Seconds after a trial's start at which no iterations are added to the least number."""
        return self.time_limit_s * SHARE_FOR_MORE

    def limit_at(self, accumulation: int) -> float:
        """Return the seconds of an iteration at this GAS value beyond which the trial is over."""
        limits = dict(zip(self.accumulations, self.give_up_above_s, strict=False))
        return limits.get(accumulation, inf)

    def iterations_owed(self, accumulation: int) -> float:
        """Return what the later GAS values take at the least, in iterations at this one, by the law
        of `autotune.measurement.AccumulationLaw`."""
        later = (gas for gas in self.accumulations if gas > accumulation)
        slots = sum(gas + self.pipeline_wait for gas in later)
        return self.fewest_iterations * slots / (accumulation + self.pipeline_wait)

    def verdict(self, accumulation: int, times_s: Sequence[float], *, elapsed_s: float) -> Verdict:
        """Return whether to go on at this one of `values`.

        Args:
            times_s: seconds of each iteration so far at this GAS, those of the warm-up included.
            elapsed_s: seconds since the trial's start.
        """
        if accumulation not in self.accumulations:
            return Verdict.ENOUGH if len(times_s) >= self.warmup_iterations else Verdict.GO_ON
        times_s = times_s[self.warmup_at(accumulation) :]
        owed_s = self.iterations_owed(accumulation) * median(times_s) if times_s else 0.0
        left_s = self.time_limit_s - elapsed_s - owed_s
        return verdict(
            times_s,
            least=self.measured_iterations,
            most=self.most,
            target_spread=self.target_spread,
            long_s=self.long_s,
            give_up_above_s=self.limit_at(accumulation),
            spare_s=self.time_for_more_s - elapsed_s - owed_s,
            left_s=left_s if owed_s else inf,
        )

    def ended_early(self, decision: Verdict, accumulation: int) -> str:
        """Return the log's line for a trial that ends after this GAS; empty where it does not."""
        if decision is Verdict.GIVE_UP:
            return gave_up(accumulation, self.limit_at(accumulation))
        return out_of_time(accumulation) if decision is Verdict.OUT_OF_TIME else ""


@dataclass(frozen=True, kw_only=True)
class TrialRequest:
    """One short training run.

    Attributes:
        token: unique name of this attempt; a backend that is given it twice runs it once.
        directory: of this trial alone; its log and its result file are written there.
        seed: of weights and data (and of the noise of a simulated trial).
        group: trials of one group share nodes fairly with those of other groups.
    """

    token: str
    transformer: Transformer
    machine: Machine
    strategy: Strategy
    protocol: TrialProtocol
    directory: Path
    seed: int = 0
    group: str = ""


@dataclass(frozen=True, kw_only=True)
class TrialProgress:
    """The state of a trial that has not ended.

    Attributes:
        phase: `waiting` until it has nodes, `running` from then on.
        reason: why it waits, in a sentence for the user; of one that runs, what keeps its end from
            being known.
        job_id: of the scheduler, where there is one and it is known.
        host: the nodes that it runs on.
    """

    phase: Literal["waiting", "running"]
    reason: str = ""
    job_id: str | None = None
    host: str = ""


RUNNING = TrialProgress(phase="running")


@dataclass(frozen=True, kw_only=True)
class SampledNode:
    """Power of all GPUs of one node over time, the host left out.

    Attributes:
        samples: that were taken; where the points are fewer, each is the mean of several.
        at_s: seconds since the trial's start, by the node's clock, rising; shape (n,).
        watts: shape (n,).
    """

    node: str
    samples: int
    at_s: tuple[float, ...]
    watts: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class SampledPower:
    """Power of a trial's nodes over time.

    Attributes:
        energy_windows_s: the first and the last second of each stretch from which the trial's
            energy was computed, since its start; empty where it was not.
    """

    nodes: tuple[SampledNode, ...]
    energy_windows_s: tuple[tuple[float, float], ...] = ()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SampledPower:
        """Return what `asdict` was called on, from JSON."""
        return cls(
            nodes=tuple(
                SampledNode(
                    node=str(node["node"]),
                    samples=int(node["samples"]),
                    at_s=tuple(node["at_s"]),
                    watts=tuple(node["watts"]),
                )
                for node in data["nodes"]
            ),
            energy_windows_s=tuple((start, end) for start, end in data["energy_windows_s"]),
        )


FORMER_ENERGY = "joules_per_token"


@dataclass(frozen=True, kw_only=True)
class TrialOutcome:
    """The result of a trial, whatever came of it.

    Attributes:
        status: final, so never `pending`.
        measurements: one for each measured GAS; empty unless status is ok.
        peak_memory_gib: one figure for each rank, in rank order, where known.
        trainer_parameters: of the model, as its trainer counts them, where it tells.
        routing: of tokens to experts; None without experts, and where the trainer does not tell.
        error: the root cause in one line; None when ok.
        log_tail: the last lines of the trial's log.
        duration_s: wall time that the nodes were held.
        gpu_joules_per_token: drawn by the GPUs alone through the measured iterations; None where
            their power was not sampled.
        energy_note: how it was sampled, or why it was not.
        power: over time; None where no node was sampled.
        job_id: of the scheduler, where one ran it.
        versions: of what ran it, by package name.
    """

    status: TrialState
    started_at: datetime
    duration_s: float
    simulated: bool
    measurements: tuple[AccumulationMeasurement, ...] = ()
    peak_memory_gib: tuple[float, ...] = ()
    loss: float | None = None
    trainer_parameters: float | None = None
    routing: Routing | None = None
    error: str | None = None
    log_tail: str = ""
    log_path: str | None = None
    host: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    gpu_joules_per_token: float | None = None
    energy_note: str = ""
    power: SampledPower | None = None
    job_id: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the result file's content, as JSON can hold it."""
        plain = {"status": self.status.value, "started_at": self.started_at.isoformat()}
        return asdict(self) | plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrialOutcome:
        """Return what `as_dict` was called on.

        Raises:
            KeyError, TypeError, ValueError: `data` is anything else.
        """
        measurements = tuple(
            AccumulationMeasurement(
                gradient_accumulation_steps=m["gradient_accumulation_steps"],
                iteration_times_s=tuple(m["iteration_times_s"]),
            )
            for m in data["measurements"]
        )
        status = TrialState(data["status"])
        if status is TrialState.PENDING:
            raise ValueError("an outcome is final, and pending is not")
        plain = dict(data) | {
            "status": status,
            "started_at": datetime.fromisoformat(data["started_at"]),
            "measurements": measurements,
            "peak_memory_gib": tuple(data["peak_memory_gib"]),
        }
        if plain.get("power") is not None:
            plain["power"] = SampledPower.from_dict(plain["power"])
        if FORMER_ENERGY in plain:  # of an earlier version, which a trial has outlived
            plain["gpu_joules_per_token"] = plain.pop(FORMER_ENERGY)
        return cls(**plain)
