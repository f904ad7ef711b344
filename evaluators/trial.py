"""Trials: request, protocol, progress, outcome, what runs them, and the files of their folders."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cache
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Literal, Protocol

from pydantic import ConfigDict, TypeAdapter

from autotune.files import raise_if_failing, write_whole
from autotune.measurement.metrics import LONG_ITERATION_S, AccumulationMeasurement
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Routing
from evaluators.stopping_rule import FEWEST, Verdict, gave_up, out_of_time, verdict
from search_spaces.fields import as_table, checked
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

TARGET_SPREAD = 0.01
"""Two trials of one strategy, on other nodes or at another time, differ by about as much; a more
precise median says nothing more about the strategy."""

SHARE_FOR_MORE = 0.5
"""Share of the time limit after which no iterations beyond the minimum are added, so that noise
does not cause a timeout."""


@dataclass(frozen=True, kw_only=True)
class TrialProtocol:
    """How a trial measures.

    Attributes:
        warmup_iterations: untimed iterations at the start.
        warmup_accumulation: GAS of the warm-up, at most the smallest of `accumulations`, which is
            the default.
        measured_iterations: minimum timed iterations per GAS value; with an adaptive number, two
            that agree are enough if they take LONG_ITERATION_S.
        most_iterations: maximum timed iterations per GAS value; `measured_iterations` by default,
            and at least that.
        target_spread: relative standard error of the median at which a GAS value is measured
            precisely enough.
        give_up_above_s: GAS value -> seconds per iteration above which the trial ends with what it
            has measured; empty to never give up.
        accumulations: GAS values, ascending. A search trial measures two, or only the strategy's
            own if that is at most PP; a confirmation only its own.
        pipeline_wait: micro-batches that filling and draining the pipeline take (the bubble).
        time_limit_s: wall time of the whole trial, including start-up.
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
        """Maximum number of timed iterations per GAS value."""
        return max(self.measured_iterations, self.most_iterations or 0)

    @property
    def values(self) -> tuple[int, ...]:
        """GAS values in order: that of the warm-up, if different, then the measured ones."""
        first = self.warmup_accumulation
        if not self.warmup_iterations or first is None or first in self.accumulations:
            return self.accumulations
        return (first, *self.accumulations)

    def warmup_at(self, accumulation: int) -> int:
        """Return the number of warm-up iterations at the beginning of this one of `values`."""
        return self.warmup_iterations if accumulation == self.values[0] else 0

    @property
    def adaptive(self) -> bool:
        """Whether the measurements decide how long the trial continues."""
        return self.adds_iterations or bool(self.give_up_above_s)

    @property
    def adds_iterations(self) -> bool:
        return self.most > self.measured_iterations

    @property
    def fewest_iterations(self) -> int:
        """Minimum timed iterations per GAS value, however long they take."""
        least = self.measured_iterations
        return min(least, FEWEST) if self.adds_iterations else least

    @property
    def long_s(self) -> float:
        """Iteration time in seconds above which two iterations that agree are enough."""
        return LONG_ITERATION_S if self.adds_iterations else inf

    @property
    def time_for_more_s(self) -> float:
        """Seconds after a trial's start beyond which no iterations are added to the minimum."""
        return self.time_limit_s * SHARE_FOR_MORE

    def limit_at(self, accumulation: int) -> float:
        """Return the seconds per iteration at this GAS value above which the trial ends."""
        limits = dict(zip(self.accumulations, self.give_up_above_s, strict=False))
        return limits.get(accumulation, inf)

    def iterations_owed(self, accumulation: int) -> float:
        """Return the minimum time of the later GAS values, in iterations at this one, by
        `autotune.measurement.AccumulationLaw`."""
        later = (gas for gas in self.accumulations if gas > accumulation)
        slots = sum(gas + self.pipeline_wait for gas in later)
        return self.fewest_iterations * slots / (accumulation + self.pipeline_wait)

    def verdict(self, accumulation: int, times_s: Sequence[float], *, elapsed_s: float) -> Verdict:
        """Return whether to continue at this one of `values`.

        Args:
            times_s: seconds of each iteration so far at this GAS, including warm-up.
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
        """Return the log line of a trial that ends after this GAS; empty if it does not."""
        if decision is Verdict.GIVE_UP:
            return gave_up(accumulation, self.limit_at(accumulation))
        return out_of_time(accumulation) if decision is Verdict.OUT_OF_TIME else ""


@dataclass(frozen=True, kw_only=True)
class TrialRequest:
    """One short training run.

    Attributes:
        token: unique name of this attempt; a backend runs each token once.
        directory: the trial's own folder, for its log and its result.
        seed: of weights and data, and of the noise of a simulated trial.
        group: name of a group of trials; nodes are shared fairly between groups.
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
        phase: `waiting` until it has nodes, then `running`.
        reason: why it waits, as a sentence for the user; for a running trial, why its end cannot be
            determined.
        job_id: the scheduler's job, if there is one and it is known.
        host: the nodes that it runs on.
    """

    phase: Literal["waiting", "running"]
    reason: str = ""
    job_id: str | None = None
    host: str = ""


RUNNING = TrialProgress(phase="running")


@dataclass(frozen=True, kw_only=True)
class TrialOutcome:
    """The result of a trial, successful or not.

    Attributes:
        status: final, never `pending`.
        measurements: one per measured GAS; empty unless status is ok.
        peak_memory_gib: one per rank, in rank order, if known.
        peak_allocated_gib: the most that torch's allocator gave out on a rank, if known.
        loss, first_losses: of the last iteration, and of the first ones in order, warm-up included.
        trainer_parameters: the trainer's own count of the model's parameters, if it reports one.
        confirmed: names of the strategy that the trainer reported with the requested value.
        routing: of tokens to experts; None without experts, or if the trainer does not report it.
        error: the root cause in one line; None if ok.
        log_tail: the last lines of the trial's log.
        duration_s: wall time for which the nodes were held.
        gpu_joules_per_token: energy of the GPUs alone during the measured iterations; None if power
            was not sampled.
        energy_note: how it was sampled, or why it was not.
        job_id: the scheduler's job, if there was one.
        versions: package -> version of the software that ran it.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    status: TrialState
    started_at: datetime
    duration_s: float
    simulated: bool
    measurements: tuple[AccumulationMeasurement, ...] = ()
    peak_memory_gib: tuple[float, ...] = ()
    peak_allocated_gib: float | None = None
    loss: float | None = None
    first_losses: tuple[float, ...] = ()
    trainer_parameters: float | None = None
    confirmed: tuple[str, ...] = ()
    routing: Routing | None = None
    error: str | None = None
    log_tail: str = ""
    log_path: str | None = None
    host: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    gpu_joules_per_token: float | None = None
    energy_note: str = ""
    job_id: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the content of the result file."""
        plain = {"status": self.status.value, "started_at": self.started_at.isoformat()}
        return asdict(self) | plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrialOutcome:
        """Return the outcome from the result of `as_dict`; raises ValueError for anything else."""
        outcome = _adapter().validate_python(dict(data))
        if outcome.status is TrialState.PENDING:
            raise ValueError("an outcome is final, and pending is not")
        return outcome


@cache
def _adapter() -> TypeAdapter[TrialOutcome]:
    return TypeAdapter(TrialOutcome)


class Backend(Protocol):
    """Runs trials. No method blocks for longer than starting a process or one status call.

    Attributes:
        name: as campaigns name it (`simulated`, `local`, …).
        simulated: whether its results are simulated instead of measured.
    """

    name: str
    simulated: bool

    def submit(self, request: TrialRequest) -> None:
        """Start the trial, unless its token is running or has a result.

        Raises:
            OSError: the disk is full; the caller submits the trial again later.
        """

    def poll(self, requests: Sequence[TrialRequest]) -> Mapping[str, TrialOutcome | TrialProgress]:
        """Return, by token, the outcome of each ended trial and the progress of each other one.

        A trial that neither runs nor left a result in its directory is missing from the answer; the
        caller submits it again.
        """

    def cancel(self, token: str) -> None:
        """End the trial and all its processes; its outcome becomes `cancelled`."""

    def close(self) -> None:
        """Detach: end what needs this process, and leave what a scheduler runs."""


RESULT = "result.json"
LOG = "trial.log"


def request_as_dict(request: TrialRequest) -> dict[str, Any]:
    """Return the request in JSON-compatible form."""
    plain = {
        "directory": str(request.directory),
        **{
            name: as_table(getattr(request, name))
            for name in ("strategy", "transformer", "machine")
        },
    }
    return asdict(request) | plain


def request_from_dict(data: Mapping[str, Any]) -> TrialRequest:
    """Return the request from the result of `request_as_dict`.

    Raises:
        KeyError, TypeError, InvalidInputs: `data` has another form.
    """
    protocol = dict(data["protocol"])
    for name in ("accumulations", "give_up_above_s"):
        protocol[name] = tuple(protocol.get(name, ()))
    return TrialRequest(
        token=data["token"],
        transformer=checked(Transformer, data["transformer"]),
        machine=checked(Machine, data["machine"], prefix="machine"),
        strategy=checked(Strategy, data["strategy"]),
        protocol=TrialProtocol(**protocol),
        directory=Path(data["directory"]),
        seed=data.get("seed", 0),
    )


def write_result(directory: Path, outcome: TrialOutcome) -> None:
    """Write the outcome to `directory` durably; raises OSError."""
    write_whole(directory / RESULT, json.dumps(outcome.as_dict(), indent=2), durable=True)


def read_result(directory: Path) -> TrialOutcome | None:
    """Return the outcome in `directory`; None if there is none yet, or it cannot be read."""
    try:
        data = json.loads((directory / RESULT).read_text(encoding="utf-8"))
        return TrialOutcome.from_dict(data)
    except OSError as error:
        raise_if_failing(error)
    except (ValueError, KeyError, TypeError):
        pass
    return None


def log_tail(directory: Path) -> str:
    """Return the last 40 lines of the trial's log, up to 16 KiB; empty if there is none."""
    return "\n".join(log_end(directory, most_bytes=16_384).splitlines()[-40:])


def log_end(directory: Path, *, most_bytes: int = 65_536) -> str:
    """Return the end of the log in a trial's or an attempt's folder; empty if there is none."""
    try:
        with (directory / LOG).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
            return file.read(most_bytes).decode("utf-8", "replace")
    except OSError:
        return ""
