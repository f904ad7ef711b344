"""Trials that are simulated, not run: for planning, demonstrations and tests.

The simulated machine differs from the one that the search assumes: every constant of the cost model
is drawn from the request's seed, so that all trials of a campaign share one machine, and each
layout and each run has its own noise.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any

import numpy as np

from autotune.cost_model import Parameters, estimate, perturbed
from autotune.files import write_whole
from autotune.measurement.metrics import AccumulationMeasurement, cluster_start_up_s
from autotune.schemas.choices import TrialState
from evaluators.stopping_rule import Verdict
from evaluators.trial import (
    LOG,
    RESULT,
    RUNNING,
    TrialOutcome,
    TrialProgress,
    TrialRequest,
    read_result,
    write_result,
)
from search_spaces.dimensions import ACCUMULATION, BY_NAME, DIMENSIONS
from search_spaces.lattice import Lattice
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.rules import findings
from search_spaces.strategy import Strategy

LAYOUT_NOISE = 0.03
"""Standard deviation of the logarithm of time between layouts, equal on any number of nodes:
effects without a closed form, such as the kernel that a library picks for a shape. Calibrated
closed forms err by 5 to 13 %; half of that is enough to reorder the best."""

RUN_NOISE = 0.01
"""The same between runs of one layout: other nodes, other network traffic."""

ITERATION_NOISE = 0.005
"""The same between the iterations of one run."""

MEMORY_NOISE = 0.01
"""The same of a layout's peak memory, due to the order of allocations."""

FIRST_ITERATION = 1.15
"""Time of the first iteration over a later one (published logs: 225 s against 196 s)."""

FIRST_DRAWN = DIMENSIONS[: DIMENSIONS.index("context_parallel") + 1]
"""Dimensions that always seed the noise."""

_SUBMITTED = "submitted.json"
_TAIL_LINES = 40


class SimulatedBackend:
    """The simulator as a backend (`evaluators.trial.Backend`). Each trial's state is in its
    directory and is read again only when the trial is due to end.

    Args:
        program: the trainer that is simulated.
        time_scale: real seconds per simulated second; 0 ends a trial at once.
    """

    name = "simulated"
    simulated = True

    def __init__(
        self, program: ProgramCapabilities = ANY_PROGRAM, *, time_scale: float = 0.0
    ) -> None:
        self._program = program
        self._time_scale = time_scale
        self._requests: dict[str, TrialRequest] = {}
        self._times: dict[str, tuple[datetime, datetime]] = {}

    def submit(self, request: TrialRequest) -> None:
        self._requests[request.token] = request
        request.directory.mkdir(parents=True, exist_ok=True)
        if (request.directory / _SUBMITTED).exists() or (request.directory / RESULT).exists():
            return
        now = datetime.now(UTC)
        wait_s = (
            simulate(request, started_at=now, program=self._program).outcome.duration_s
            * self._time_scale
        )
        ends_at = now + timedelta(seconds=wait_s)
        state = {"started_at": now.isoformat(), "ends_at": ends_at.isoformat()}
        write_whole(request.directory / _SUBMITTED, json.dumps(state))

    def poll(self, requests: Sequence[TrialRequest]) -> Mapping[str, TrialOutcome | TrialProgress]:
        trials: dict[str, TrialOutcome | TrialProgress] = {}
        now = datetime.now(UTC)
        for request in requests:
            times = self._times.get(request.token)
            found = RUNNING if times and _goes_on(times, now) else self._read(request, now=now)
            if found is not None:
                trials[request.token] = found
        return trials

    def _read(self, request: TrialRequest, *, now: datetime) -> TrialOutcome | TrialProgress | None:
        self._times.pop(request.token, None)
        times = _times(request)
        outcome = read_result(request.directory)
        if outcome is None and times and _goes_on(times, now):
            self._requests[request.token], self._times[request.token] = request, times
            return RUNNING
        self._requests.pop(request.token, None)
        if outcome is None and times:
            return _finish(request, simulate(request, started_at=times[0], program=self._program))
        return outcome

    def cancel(self, token: str) -> None:
        self._times.pop(token, None)
        request = self._requests.get(token)
        times = _times(request) if request else None
        if request is None or times is None or read_result(request.directory) is not None:
            return
        trial = simulate(request, started_at=times[0], program=self._program)
        elapsed_s = (datetime.now(UTC) - times[0]).total_seconds()
        simulated_s = elapsed_s / self._time_scale if self._time_scale else 0.0
        after_s = min(max(0.0, simulated_s), trial.outcome.duration_s)
        _finish(request, trial.cut(after_s, TrialState.CANCELLED, "cancelled on request"))

    def close(self) -> None:
        self._requests.clear()
        self._times.clear()


@dataclass(frozen=True, kw_only=True)
class SimulatedTrial:
    """The course of a simulated trial.

    Attributes:
        startup_s: simulated seconds before its first iteration.
        iterations: (GAS, seconds) of each, in order.
        given_up: why it ended before its last GAS value; empty if it did not.
    """

    outcome: TrialOutcome
    startup_s: float
    iterations: tuple[tuple[int, float], ...]
    given_up: str = ""

    def cut(self, after_s: float, status: TrialState, error: str) -> SimulatedTrial:
        """Return the trial as if ended from outside, `after_s` simulated seconds after its
        start."""
        ends = np.cumsum([self.startup_s, *(seconds for _, seconds in self.iterations)])[1:]
        done = int(np.count_nonzero(ends <= after_s))
        outcome = replace(
            self.outcome,
            status=status,
            error=error,
            duration_s=after_s,
            measurements=(),
            peak_memory_gib=self.outcome.peak_memory_gib if done else (),
        )
        return replace(self, outcome=outcome, iterations=self.iterations[:done], given_up="")


def simulate(
    request: TrialRequest, *, started_at: datetime, program: ProgramCapabilities = ANY_PROGRAM
) -> SimulatedTrial:
    """Simulate a trial; deterministic in seed, strategy, protocol and program."""
    trial = _without_limit(request, started_at, program)
    limit_s = request.protocol.time_limit_s
    if trial.outcome.duration_s <= limit_s:
        return trial
    return trial.cut(limit_s, TrialState.TIMEOUT, f"not finished within {limit_s:g} s")


def _without_limit(
    request: TrialRequest, started_at: datetime, program: ProgramCapabilities
) -> SimulatedTrial:
    startup_s = float(cluster_start_up_s(request.strategy.num_nodes))
    blank = TrialOutcome(
        status=TrialState.OK,
        started_at=started_at,
        duration_s=startup_s,
        simulated=True,
        host=platform.node(),
        versions={"autotune": version("autotune")},
        log_path=str(request.directory / LOG),
    )
    broken_rules = findings(request.strategy, request.transformer, request.machine, program=program)
    reasons = [finding.reason for finding in broken_rules if finding.severity == "refuse"]
    if reasons:
        crashed = replace(blank, status=TrialState.CRASHED, error=reasons[0])
        return SimulatedTrial(outcome=crashed, startup_s=startup_s, iterations=())
    times_s, needed_gib, peak_gib = _truth(request, program)
    if needed_gib > request.machine.memory_gib:
        error = (
            f"out of memory (simulated): the fullest GPU needs {needed_gib:.1f} GiB "
            f"and a GPU has {request.machine.memory_gib:g} GiB"
        )
        duration_s = startup_s + _until_full_s(request, times_s[0])
        outcome = replace(blank, status=TrialState.OOM, duration_s=duration_s, error=error)
        return SimulatedTrial(outcome=outcome, startup_s=startup_s, iterations=())
    return _measured(request, blank, times_s=times_s, peak_gib=peak_gib)


def _until_full_s(request: TrialRequest, iteration_time_s: float) -> float:
    """Return the seconds until the first stage holds its maximum number of micro-batches; a trial
    that runs out of memory has failed by then.

    Args:
        iteration_time_s: at the smallest GAS of the trial.
    """
    strategy, gas = request.strategy, request.protocol.values[0]
    stages = strategy.pipeline_parallel
    slot_s = iteration_time_s / (gas + (stages - 1) / strategy.virtual_stages)
    return FIRST_ITERATION * min(gas, stages) * slot_s


def _measured(
    request: TrialRequest, blank: TrialOutcome, *, times_s: Sequence[float], peak_gib: float
) -> SimulatedTrial:
    protocol = request.protocol
    rng = _generator(request.seed, _drawn_by(request.strategy), protocol.accumulations)
    run = rng.lognormal(0.0, RUN_NOISE)
    shape = (len(times_s), protocol.warmup_iterations + protocol.most)
    seconds = np.array(times_s)[:, None] * run * rng.lognormal(0.0, ITERATION_NOISE, size=shape)
    seconds[0, 0] *= FIRST_ITERATION
    elapsed_s, given_up = blank.duration_s, ""
    measurements: list[AccumulationMeasurement] = []
    iterations: list[tuple[int, float]] = []
    for gas, row in zip(protocol.values, seconds.tolist(), strict=True):
        decision, count = Verdict.GO_ON, 0
        while decision is Verdict.GO_ON:
            elapsed_s += row[count]
            iterations.append((gas, row[count]))
            count += 1
            decision = protocol.verdict(gas, row[:count], elapsed_s=elapsed_s)
        if gas in protocol.accumulations:
            timed = tuple(row[protocol.warmup_at(gas) : count])
            measurements.append(
                AccumulationMeasurement(gradient_accumulation_steps=gas, iteration_times_s=timed)
            )
        if given_up := protocol.ended_early(decision, gas):
            break
    outcome = replace(
        blank,
        duration_s=elapsed_s,
        measurements=tuple(measurements),
        peak_memory_gib=(peak_gib,),  # the model predicts only the fullest rank
    )
    return SimulatedTrial(
        outcome=outcome,
        startup_s=blank.duration_s,
        iterations=tuple(iterations),
        given_up=given_up,
    )


def _truth(request: TrialRequest, program: ProgramCapabilities) -> tuple[list[float], float, float]:
    """Return the seconds of each GAS, the memory that the fullest rank needs, and what torch's
    allocator reserves there."""
    machine, strategy = request.machine, request.strategy
    twins = [strategy.with_accumulation(gas) for gas in request.protocol.values]
    lattice = Lattice.of(twins, gpus_per_node=machine.gpus_per_node)
    usual = Parameters.default(machine, program.tuning, program.states)
    parameters = perturbed(usual, seed=request.seed)
    predicted = estimate(request.transformer, machine, lattice, parameters=parameters)
    drawn = _drawn_by(replace(strategy, num_nodes=1))
    del drawn[ACCUMULATION]
    values = [drawn.pop(name) for name in FIRST_DRAWN if name in drawn]
    rng = _generator(request.seed, (*values, *drawn.items()))
    slower, fuller = rng.lognormal(0.0, [LAYOUT_NOISE, MEMORY_NOISE])
    times_s = (predicted.iteration_time_s * slower).tolist()
    needed, reserved = (
        float(gib.max() * fuller) for gib in (predicted.memory_gib, predicted.reserved_gib)
    )
    return times_s, needed, min(reserved, machine.memory_gib)


def _drawn_by(strategy: Strategy) -> dict[str, Any]:
    """Return the values that seed the noise. Dimensions added after FIRST_DRAWN count only if they
    are not at their default, so that a new dimension leaves existing noise unchanged."""
    return {
        name: value
        for name, value in strategy.as_dict().items()
        if name in FIRST_DRAWN or name not in BY_NAME or value != BY_NAME[name].default
    }


def _generator(seed: int, *key: Any) -> np.random.Generator:
    digest = hashlib.sha256(repr(key).encode()).digest()
    return np.random.default_rng([seed, *np.frombuffer(digest, dtype=np.uint32).tolist()])


def _finish(request: TrialRequest, trial: SimulatedTrial) -> TrialOutcome:
    lines = [
        "SIMULATED: no training took place; the figures below are predicted, with noise added.",
        f"{request.transformer.name} on {request.machine.name}: {request.strategy.short()}",
        f"start-up: {trial.startup_s:.1f} s",
    ]
    samples = 0
    for number, (gas, seconds) in enumerate(trial.iterations, start=1):
        twin = request.strategy.with_accumulation(gas)
        batch = twin.global_batch_size(request.machine.gpus_per_node)
        samples += batch
        lines.append(
            f" iteration {number:8d}/{len(trial.iterations):8d} | consumed samples: {samples:12d}"
            f" | elapsed time per iteration (ms): {seconds * 1000:.1f}"
            f" | global batch size: {batch:5d} | samples per second: {batch / seconds:.3f} |"
        )
    lines += filter(None, [trial.given_up, trial.outcome.error])
    lines.append(f"{trial.outcome.status.value} after {trial.outcome.duration_s:.1f} s\n")
    log = "\n".join(lines)
    (request.directory / LOG).write_text(log, encoding="utf-8")
    outcome = replace(trial.outcome, log_tail="".join(log.splitlines(True)[-_TAIL_LINES:]))
    write_result(request.directory, outcome)
    return outcome


def _times(request: TrialRequest) -> tuple[datetime, datetime] | None:
    try:
        data = json.loads((request.directory / _SUBMITTED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return datetime.fromisoformat(data["started_at"]), datetime.fromisoformat(data["ends_at"])


def _goes_on(times: tuple[datetime, datetime], now: datetime) -> bool:
    """Return whether a trial is running now. One that starts in the future has ended: the clock was
    set back, and the trial would otherwise run until the clock catches up."""
    began_at, ends_at = times
    return began_at <= now < ends_at
