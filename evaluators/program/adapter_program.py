"""A trainer that an adapter describes, as a program of a cluster or of this machine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from inspect import getsource
from pathlib import Path
from typing import Any

from autotune.measurement import AccumulationMeasurement
from autotune.schemas import TrialState
from evaluators.adapter import rank_process
from evaluators.adapter.adapter import Adapter
from evaluators.adapter.expression import Value
from evaluators.adapter.figures import StartFigures, ToldIteration
from evaluators.adapter.log import AdapterLog, file_patterns
from evaluators.adapter.names import strategy_names
from evaluators.adapter.rendering import StartPlan, start_of
from evaluators.cluster.profile import ClusterProfile
from evaluators.program import task
from evaluators.program.interpreter import python
from evaluators.program.outcome import AttemptFailure, failed, failure_of, succeeded
from evaluators.program.power import Energy, energy
from evaluators.program.program import AttemptEnd, Launcher
from evaluators.program.rendezvous import RENDEZVOUS
from evaluators.program.watched_run import (
    START_SCRIPT,
    WATCHED,
    note_of,
    start_watch_files,
    watched_function,
)
from evaluators.training_log import Cause, CauseKind, Iteration, LoggedRun, TrainingLog
from evaluators.trial import TrialOutcome, TrialRequest
from evaluators.trial_files import LOG
from search_spaces.strategy import Strategy

RANK_PROCESS = "rank_process.py"
VERSIONS = "versions.json"

_WRITE_VERSIONS = f"""import json, platform, sys
from importlib.metadata import PackageNotFoundError, version
found = {{"python": platform.python_version()}}
for name, expected in json.loads(sys.argv[1]).items():
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        found[name] = "not installed"
    if found[name] != expected:
        print(name, "is", found[name] + "; the adapter was written for", expected, flush=True)
with open("{VERSIONS}", "w") as file:
    json.dump(found, file)"""


class AdapterProgram:
    """Each GAS has a start of its own: all its ranks print into the attempt's one log."""

    name = "adapter"

    def __init__(self, profile: ClusterProfile) -> None:
        if profile.adapter is None:
            raise ValueError(f"the profile {profile.name!r} has no adapter")
        self._adapter: Adapter = profile.adapter
        self._profile = profile

    def files(self, request: TrialRequest, folder: Path) -> Mapping[str, str]:
        """Return the plan of each start, and what its ranks run.

        Raises:
            InvalidInput: the adapter refuses the request's strategy.
        """
        plans = {
            _plan_name(number): json.dumps(self._plan(request, folder, number), indent=2)
            for number, _ in enumerate(request.protocol.accumulations, start=1)
        }
        files = {RANK_PROCESS: getsource(rank_process), task.SCRIPT_NAME: task.SCRIPT, **plans}
        if self._watched(request):
            files |= start_watch_files(
                request.protocol,
                self._adapter,
                _names(request),
                warmup_iterations=self.warmup_of(request),
            )
        return files

    def commands(self, request: TrialRequest, folder: Path, launcher: Launcher) -> str:
        """Return bash for one start after the other; the first that fails is the last."""
        interpreter = python(self._profile)
        pinned = json.dumps(dict(self._adapter.versions))
        versions = [*launcher.container, interpreter, "-c", _WRITE_VERSIONS, pinned]
        script = shlex.join([interpreter, str(folder / RANK_PROCESS)])
        starts = [
            task.as_ranks(launcher, folder, script, _plan_name(number))
            for number, _ in enumerate(request.protocol.accumulations, start=1)
        ]
        preparation = [RENDEZVOUS, shlex.join(versions)]
        if self._watched(request):
            interpreted = [*launcher.container, interpreter]
            preparation.append(watched_function(interpreted, START_SCRIPT))
            starts = [f"{WATCHED} {number} {start}" for number, start in enumerate(starts, start=1)]
        return "\n".join([*preparation, " &&\n".join(starts)])

    def outcome(self, request: TrialRequest, folder: Path, ended: AttemptEnd) -> TrialOutcome:
        log = self.log(request, folder)
        if failure := failure_of(ended, log.cause, folder):
            return self._failed(failure, folder, ended)
        notes = _notes(request, folder)
        starts = [
            _MeasuredStart(
                figures=start.figures,
                strategy=strategy,
                warmup_iterations=self.warmup_of(request),
                least=0 if note else request.protocol.measured_iterations,
            )
            # The start in which a trial was given up is the last.
            for note, start, strategy in zip(notes, log.starts, _strategies(request), strict=False)
        ]
        if fault := next(filter(None, (start.fault for start in starts)), None):
            return self._failed(_unmeasured(fault, log.cause), folder, ended)
        return succeeded(
            _energy(log, starts[-1], request),
            folder,
            ended,
            measurements=tuple(start.measurement for start in starts),
            peak_memory_gib=_peaks(log),
            loss=starts[-1].figures.last_loss,
            versions=self._versions(folder),
        )

    def _failed(self, failure: AttemptFailure, folder: Path, ended: AttemptEnd) -> TrialOutcome:
        return replace(failed(failure, folder, ended), versions=self._versions(folder))

    def _versions(self, folder: Path) -> Mapping[str, str]:
        return {**_versions(folder), "adapter": self._adapter.label}

    def log(self, request: TrialRequest, folder: Path) -> AdapterLog:
        """Return what the attempt's log and files tell; nothing of what cannot be read."""
        log = AdapterLog(self._adapter.read, _names(request))
        try:
            log.read(folder / LOG)
            log.read_files(folder)
        except OSError:
            return log
        return log

    def warmup_of(self, request: TrialRequest) -> int:
        """Return the iterations that are left out at the beginning of each start."""
        return max(self._adapter.warmup_iterations, request.protocol.warmup_iterations)

    def _watched(self, request: TrialRequest) -> bool:
        """Whether what a start prints may end it."""
        return request.protocol.adaptive and any(reader.log for reader in self._adapter.read)

    def _iterations(self, request: TrialRequest) -> int:
        """Return what the trainer is asked for at each start."""
        protocol = request.protocol
        ended = self._watched(request) and self._adapter.ends_early
        measured = protocol.most if ended else protocol.measured_iterations
        return self.warmup_of(request) + measured

    def _plan(self, request: TrialRequest, folder: Path, number: int) -> Mapping[str, object]:
        """Return what the ranks of a start are told."""
        out = str(folder / f"start-{number}")
        start = start_of(
            self._adapter,
            StartPlan(
                transformer=request.transformer,
                machine=request.machine,
                strategy=_strategies(request)[number - 1],
                iterations=self._iterations(request),
                python=python(self._profile),
                out=out,
                seed=1 + request.seed,
            ),
        )
        return {
            "start": number,
            "words": start.words,
            "variables": start.variables,
            "files": start.files,
            "out": out,
            "folder": self._adapter.folder,
            "collect": file_patterns(self._adapter.read),
        }


def _plan_name(number: int) -> str:
    return f"start-{number}.json"


def _strategies(request: TrialRequest) -> list[Strategy]:
    """Return the strategy of each start: each GAS that is measured, rising."""
    return [request.strategy.with_accumulation(gas) for gas in request.protocol.accumulations]


def _names(request: TrialRequest) -> list[dict[str, Value]]:
    """Return the values of the strategy's names at each start."""
    return [
        strategy_names(request.transformer, request.machine, strategy)
        for strategy in _strategies(request)
    ]


def _notes(request: TrialRequest, folder: Path) -> list[Mapping[str, Any] | None]:
    """Return what was noted of each start that was ended early, as far as the trial came."""
    notes: list[Mapping[str, Any] | None] = []
    for number, _ in enumerate(request.protocol.accumulations, start=1):
        notes.append(note := note_of(folder, number))
        if note and note.get("given_up"):
            break
    return notes


class _MeasuredStart:
    """What the log has of one start.

    Args:
        least: iterations that must have been measured; 0 where it was ended early.
    """

    def __init__(
        self, *, figures: StartFigures, strategy: Strategy, warmup_iterations: int, least: int
    ) -> None:
        self.figures, self.strategy = figures, strategy
        self._warmup, self._least = warmup_iterations, least

    @property
    def iterations(self) -> list[ToldIteration]:
        """The iterations that count: after the warm-up, and with a loss that is a number."""
        not_numbers = self.figures.not_numbers
        return [i for i in self._timed if i.step not in not_numbers]

    @property
    def measurement(self) -> AccumulationMeasurement:
        return AccumulationMeasurement(
            gradient_accumulation_steps=self.strategy.gradient_accumulation_steps,
            iteration_times_s=tuple(float(i.time_s or 0.0) for i in self.iterations),
        )

    @property
    def fault(self) -> str | None:
        """The reason why there is no measurement; None where there is one."""
        gas = f"GAS {self.strategy.gradient_accumulation_steps}"
        if self.figures.differs:
            name, asked, told = self.figures.differs
            return f"{gas}: the trainer says {name} = {told} where {asked} was asked for"
        told_of = self.figures.iterations
        if not told_of:
            return f"{gas}: no pattern of the adapter found the time of an iteration in its output"
        if not self._timed and self.figures.apart > 1:
            return (
                f"{gas}: the trainer tells of every {self.figures.apart}th iteration alone, too "
                "few to be measured after the warm-up: let it tell of each, or train more"
            )
        if self._missing:
            return (
                f"{gas}: the last iteration that was timed is number {told_of[-1].step} of "
                f"{self._last}, though all ended well"
            )
        if not self.iterations:
            return f"{gas}: the loss of no measured iteration is a number"
        return None

    @property
    def _last(self) -> int:
        """The number of the last iteration that has to be there."""
        return self.figures.first + self._warmup + self._least - 1

    @property
    def _timed(self) -> list[ToldIteration]:
        return self.figures.after_warmup(self._warmup)

    @property
    def _missing(self) -> bool:
        """Whether it ended before its last iteration, which is not told where not each one is."""
        return not self._timed or self._timed[-1].step <= self._last - self.figures.apart


def _unmeasured(fault: str, cause: Cause | None) -> AttemptFailure:
    """Return the failure of a trainer that ended well, and yet was not measured: it may have caught
    an error of its own."""
    if cause is None or cause.kind is CauseKind.CONSEQUENCE:
        return AttemptFailure(status=TrialState.CRASHED, error=fault)
    status = TrialState.OOM if cause.out_of_memory else TrialState.CRASHED
    return AttemptFailure(status=status, error=f"{cause.error} ({fault})")


def _energy(log: AdapterLog, last: _MeasuredStart, request: TrialRequest) -> Energy:
    """Return the energy of the last start, which has the largest batches."""
    counted = {each.step for each in last.iterations}
    measured = [
        Iteration(line=line, number=told.step, elapsed_s=told.time_s or 0.0)
        for line, told in enumerate(last.figures.iterations, start=1)
        if told.step in counted
    ]
    run = LoggedRun(power=log.power(len(log.starts) - 1))
    runs = tuple(LoggedRun(power=log.power(n)) for n in range(len(log.starts)))
    samples = last.strategy.global_batch_size(request.machine.gpus_per_node) * len(measured)
    return energy(
        TrainingLog(runs=runs),
        run,
        measured,
        nodes=request.strategy.num_nodes,
        tokens=samples * request.transformer.seq_length,
    )


def _peaks(log: AdapterLog) -> tuple[float, ...]:
    """Return the peak of each rank that told it, in rank order, GiB."""
    peaks: dict[int, float] = {}
    for start in log.starts:
        for rank, told in start.figures.ranks.items():
            if told.peak_memory_gib is not None:
                peaks[rank] = max(told.peak_memory_gib, peaks.get(rank, 0.0))
    return tuple(peaks[rank] for rank in sorted(peaks))


def _versions(folder: Path) -> Mapping[str, str]:
    """Return what the job wrote of the versions it ran with; nothing where that is damaged."""
    try:
        versions = json.loads((folder / VERSIONS).read_text(encoding="utf-8"))
        return {str(name): str(version) for name, version in versions.items()}
    except (OSError, ValueError, AttributeError):
        return {}
