"""A trainer described by an adapter, as the program of a cluster or of this machine."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import getsource
from pathlib import Path
from typing import Any

from autotune.cost_model.parameters import is_cpu
from autotune.knobs.losses import COMPARED
from autotune.measurement.metrics import AccumulationMeasurement
from autotune.schemas.choices import TrialState
from evaluators.adapter import rank_process
from evaluators.adapter.adapter import Adapter
from evaluators.adapter.figures import ReportedIteration, StartFigures, StartPart
from evaluators.adapter.log import AdapterLog, file_patterns
from evaluators.adapter.rendering import StartPlan, in_one_start, names_of, refuse, start_of
from evaluators.cluster.knobs import strategy_of_trainer
from evaluators.cluster.profile import ClusterProfile
from evaluators.program import task
from evaluators.program.interpreter import named_python, python
from evaluators.program.outcome import (
    AttemptFailure,
    failed,
    failure_of,
    highest_by_rank,
    state_of,
    succeeded,
    versions_in,
    write_versions,
)
from evaluators.program.power import Energy, energy
from evaluators.program.program import AttemptEnd, Launcher
from evaluators.program.task import RENDEZVOUS
from evaluators.program.watched_run import (
    WATCHED,
    note_of,
    start_folder,
    start_watch_files,
    watched_function,
)
from evaluators.training_log import Cause, CauseKind, Iteration
from evaluators.trial import LOG, TrialOutcome, TrialRequest
from search_spaces.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class PlannedStarts:
    """The starts that an adapter plans for a request."""

    adapter: Adapter
    request: TrialRequest

    @property
    def warmup_iterations(self) -> int:
        return max(self.adapter.warmup_iterations, self.request.protocol.warmup_iterations)

    @property
    def watched(self) -> bool:
        return self.request.protocol.adaptive

    @cached_property
    def parts(self) -> tuple[tuple[StartPart, ...], ...]:
        """The parts of each start: one per measured GAS, ascending. Two values share a start if the
        trainer can increase its batch while running. The warm-up then uses the protocol's own GAS,
        without measuring it; otherwise that of its start.

        Raises:
            InvalidInput: the adapter's expression for this has no value.
        """
        return tuple(tuple(self._start(values)) for values in self._shared(self._values))

    def plan(self, number: int, *, python: str, out: str) -> StartPlan:
        """Return the plan of a start; starts are numbered from 1."""
        *before, last = self.parts[number - 1]
        request = self.request
        return StartPlan(
            transformer=request.transformer,
            machine=request.machine,
            strategy=request.strategy.with_accumulation(accumulation_of(last)),
            iterations=sum(part.iterations for part in (*before, last)),
            python=python,
            out=out,
            seed=1 + request.seed,
            first_accumulation=accumulation_of(before[0]) if before else None,
            first_iterations=before[0].iterations if before else 0,
        )

    @property
    def _values(self) -> tuple[int, ...]:
        values, measured = self.request.protocol.values, self.request.protocol.accumulations
        if values == measured or self._refuses(values[0]) or not self._in_one(*values[:2]):
            return measured
        return values

    def _refuses(self, accumulation: int) -> bool:
        request = self.request
        strategy = request.strategy.with_accumulation(accumulation)
        try:
            refuse(self.adapter, request.transformer, request.machine, strategy)
        except InvalidInput:
            return True
        return False

    def _shared(self, accumulations: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        while accumulations:
            pair = accumulations[:2]
            values = pair if len(pair) == 2 and self._in_one(*pair) else pair[:1]
            yield values
            accumulations = accumulations[len(values) :]

    def _in_one(self, first: int, last: int) -> bool:
        request = self.request
        strategy = request.strategy.with_accumulation(last)
        return in_one_start(self.adapter, request.transformer, request.machine, strategy, first)

    def _start(self, accumulations: tuple[int, ...]) -> Iterator[StartPart]:
        """Yield the parts of a start. Only the last one may be ended before its maximum number of
        iterations, since the length of an earlier batch is fixed."""
        request, protocol = self.request, self.request.protocol
        ended = self.watched and self.adapter.ends_early
        for accumulation in accumulations:
            warmup = self.warmup_iterations if accumulation == accumulations[0] else 0
            is_last = accumulation == accumulations[-1]
            measured = protocol.most if ended and is_last else protocol.measured_iterations
            if accumulation not in protocol.accumulations:
                measured = 0
            strategy = request.strategy.with_accumulation(accumulation)
            yield StartPart(
                names=names_of(self.adapter, request.transformer, request.machine, strategy),
                iterations=warmup + measured,
                warmup_iterations=warmup,
            )


def accumulation_of(part: StartPart) -> int:
    return int(part.names["gradient_accumulation_steps"] or 0)


RANK_PROCESS = "rank_process.py"
EXTENSIONS = "torch-extensions"
"""Folder next to the trials for DeepSpeed's compiled extensions, shared by all trials of a
profile."""

# A killed build leaves its lock behind, and every later user of the extension waits for it forever.
# In torch's own folder the lock may be anyone's; in this one, a build that has written nothing for
# ten minutes, longer than any one file takes to compile, has ended.
_OWN_EXTENSIONS = """if [[ -z "${{TORCH_EXTENSIONS_DIR:-}}" ]]; then
    export TORCH_EXTENSIONS_DIR={folder}
    for lock in "$TORCH_EXTENSIONS_DIR"/*/lock; do
        if [[ -e "$lock" && -z "$(find "${{lock%/lock}}" -mmin -10 -print -quit)" ]]; then
            rm -f "$lock"
        fi
    done
fi"""


class AdapterProgram:
    """Runs an adapter's trainer; all ranks of all starts print to the attempt's one log."""

    name = "adapter"

    def __init__(self, profile: ClusterProfile) -> None:
        if profile.adapter is None:
            raise ValueError(f"the profile {profile.name!r} has no adapter")
        self._adapter: Adapter = profile.adapter
        self._profile = profile

    def files(self, request: TrialRequest, folder: Path) -> Mapping[str, str]:
        """Return the plan of each start, and the script of its ranks.

        Raises:
            InvalidInput: the adapter refuses the request's strategy.
        """
        starts = self.starts(request)
        plans = {
            _plan_name(number): json.dumps(self._plan(starts, folder, number), indent=2)
            for number, _ in enumerate(starts.parts, start=1)
        }
        files = {RANK_PROCESS: getsource(rank_process), task.SCRIPT_NAME: task.SCRIPT, **plans}
        if starts.watched:
            files |= start_watch_files(request.protocol, self._adapter, starts.parts)
        return files

    def commands(self, request: TrialRequest, folder: Path, launcher: Launcher) -> str:
        """Return bash that runs the starts in order, up to the first failure."""
        interpreter = python(self._profile)
        plan = self._plan(self.starts(request), folder, 1)
        trains = named_python(plan["words"], folder=plan["folder"]) or interpreter
        packages = {"torch": None, **dict.fromkeys(self._adapter.needs), **self._adapter.versions}
        versions = write_versions([*launcher.container, trains], packages)
        script = shlex.join([interpreter, str(folder / RANK_PROCESS)])
        starts = self.starts(request)
        commands = [
            task.as_ranks(launcher, folder, script, _plan_name(number))
            for number, _ in enumerate(starts.parts, start=1)
        ]
        preparation = [RENDEZVOUS, versions]
        if "deepspeed" in self._adapter.needs:
            extensions = folder.parents[1] / EXTENSIONS / self._profile.name
            preparation.append(_OWN_EXTENSIONS.format(folder=shlex.quote(str(extensions))))
        if starts.watched:
            interpreted = [*launcher.container, interpreter]
            preparation.append(watched_function(interpreted))
            commands = [f"{WATCHED} {number} {each}" for number, each in enumerate(commands, 1)]
        return "\n".join([*preparation, " &&\n".join(commands)])

    def cause(self, request: TrialRequest, folder: Path) -> Cause | None:
        return self.log(request, folder).cause

    def outcome(self, request: TrialRequest, folder: Path, ended: AttemptEnd) -> TrialOutcome:
        log = self.log(request, folder)
        on_cpu = is_cpu(request.machine)
        if failure := failure_of(ended, log.cause, folder, on_cpu=on_cpu):
            return self._failed(failure, folder, ended)
        parts = list(measured_parts(log, folder, least=request.protocol.measured_iterations))
        if fault := next(filter(None, (part.fault for part in parts)), None):
            return self._failed(_unmeasured(fault, log.cause, on_cpu=on_cpu), folder, ended)
        losses = parts[-1].figures.losses
        return succeeded(
            _energy(log, parts[-1], request),
            folder,
            ended,
            measurements=tuple(part.measurement for part in parts),
            peak_memory_gib=highest_by_rank(
                (rank, reported.peak_memory_gib)
                for start in log.starts
                for rank, reported in start.figures.ranks.items()
            ),
            peak_allocated_gib=max(
                (
                    reported.peak_allocated_gib
                    for start in log.starts
                    for reported in start.figures.ranks.values()
                    if reported.peak_allocated_gib is not None
                ),
                default=None,
            ),
            loss=next((loss for loss in reversed(losses) if math.isfinite(loss)), None),
            first_losses=tuple(parts[0].figures.losses[:COMPARED]),
            trainer_parameters=parts[-1].figures.parameters,
            confirmed=tuple(sorted(parts[0].figures.confirmed)),
            versions=self._versions(folder),
        )

    def _failed(self, failure: AttemptFailure, folder: Path, ended: AttemptEnd) -> TrialOutcome:
        outcome = failed(failure, folder, ended)
        return replace(outcome, versions=self._versions(folder))

    def _versions(self, folder: Path) -> Mapping[str, str]:
        return {**versions_in(folder), "adapter": self._adapter.label}

    def log(self, request: TrialRequest, folder: Path) -> AdapterLog:
        """Return what the attempt's log and files contain; unreadable files are skipped."""
        log = AdapterLog(self._adapter.read, self.starts(request).parts)
        numbers = range(1, len(log.starts) + 1)
        try:
            log.read(folder / LOG)
            log.read_files(folder, ended=[n for n in numbers if note_of(folder, n)])
        except OSError:
            return log
        return log

    def starts(self, request: TrialRequest) -> PlannedStarts:
        strategy = strategy_of_trainer(self._profile, request.strategy)
        request = replace(request, strategy=strategy)
        return PlannedStarts(adapter=self._adapter, request=request)

    def _plan(self, starts: PlannedStarts, folder: Path, number: int) -> Mapping[str, Any]:
        out = str(folder / start_folder(number))
        plan = starts.plan(number, python=python(self._profile), out=out)
        start = start_of(self._adapter, plan)
        return {
            "start": number,
            "prepare": start.prepare,
            "words": start.words,
            "variables": start.variables,
            "files": start.files,
            "out": out,
            "folder": self._adapter.folder,
            "collect": file_patterns(self._adapter.read),
        }


def _plan_name(number: int) -> str:
    return f"start-{number}.json"


def _unmeasured(fault: str, cause: Cause | None, *, on_cpu: bool) -> AttemptFailure:
    """Return the failure of a trainer that exited normally without a measurement; it may have
    caught its own error."""
    if cause is None or cause.kind is CauseKind.CONSEQUENCE:
        return AttemptFailure(status=TrialState.CRASHED, error=fault)
    status = state_of(cause, on_cpu=on_cpu)
    return AttemptFailure(status=status, error=f"{cause.error} ({fault})")


def _energy(log: AdapterLog, last: MeasuredPart, request: TrialRequest) -> Energy:
    counted = {each.step for each in last.iterations}
    measured = [
        Iteration(line=line, number=each.step, elapsed_s=each.time_s or 0.0)
        for line, each in enumerate(last.figures.iterations, start=1)
        if each.step in counted
    ]
    strategy = request.strategy.with_accumulation(last.gradient_accumulation_steps)
    samples = strategy.global_batch_size(request.machine.gpus_per_node) * len(measured)
    return energy(
        log.power[last.start - 1],
        measured,
        nodes=request.strategy.num_nodes,
        tokens=samples * request.transformer.seq_length,
        absent={reason for power in log.power for reason in power.absent.values()},
    )


@dataclass(frozen=True, kw_only=True)
class MeasuredPart:
    """One part of a start in the log.

    Attributes:
        start: its number, from 1.
        place: index of the part in its start.
        least: iterations that must have been measured; 0 if the part was ended early.
    """

    figures: StartFigures
    start: int
    place: int
    least: int

    @property
    def gradient_accumulation_steps(self) -> int:
        return accumulation_of(self.figures.parts[self.place])

    @cached_property
    def iterations(self) -> list[ReportedIteration]:
        excluded = self.figures.excluded
        return [i for i in self._timed if i.step not in excluded]

    @property
    def measurement(self) -> AccumulationMeasurement:
        return AccumulationMeasurement(
            gradient_accumulation_steps=self.gradient_accumulation_steps,
            iteration_times_s=tuple(float(i.time_s or 0.0) for i in self.iterations),
        )

    @property
    def fault(self) -> str | None:
        """Why there is no measurement; None if there is one."""
        gas = f"GAS {self.gradient_accumulation_steps}"
        if self.figures.differs:
            name, requested, reported = self.figures.differs
            of = f"GAS {' and '.join(str(accumulation_of(part)) for part in self.figures.parts)}"
            one = " in one start" if len(self.figures.parts) > 1 else ""
            return f"{of}{one}: the trainer reports {name} = {reported} instead of {requested}"
        iterations = self.figures.iterations
        if not iterations:
            return f"{gas}: no pattern of the adapter matched an iteration's time in the output"
        if not self._timed and self.figures.apart > 1:
            return (
                f"{gas}: the trainer reports only every {self.figures.apart}th iteration, too few "
                "to measure after the warm-up: let it report each iteration, or train longer"
            )
        if self._missing:
            return (
                f"{gas}: the last iteration that was timed is number {iterations[-1].step} of "
                f"{self._last}, though all ended well"
            )
        if not self.iterations:
            return f"{gas}: no iteration after the warm-up has a finite loss and takes a step"
        return None

    @property
    def _last(self) -> int:
        return self.figures.first_measured(self.place) + self.least - 1

    @cached_property
    def _timed(self) -> list[ReportedIteration]:
        return self.figures.measured(self.place)

    @property
    def _missing(self) -> bool:
        """Whether the part ended before its last iteration; False if not every iteration is
        reported."""
        return not self._timed or self._timed[-1].step <= self._last - self.figures.apart


def measured_parts(log: AdapterLog, folder: Path, *, least: int) -> Iterator[MeasuredPart]:
    """Yield each part to measure, up to the one in which the trial was given up, if it was.

    Args:
        least: minimum iterations per GAS, unless a part was ended early.
    """
    for number, start in enumerate(log.starts, start=1):
        figures, note = start.figures, note_of(folder, number)
        end = len(figures.parts) - 1
        if note and note["given_up"]:
            end = figures.part_of(figures.first + note["iterations"] - 1)
        for place in range(end + 1):
            if figures.parts[place].only_warms_up:
                continue
            ended = bool(note) and place == end
            yield MeasuredPart(
                figures=figures, start=number, place=place, least=0 if ended else least
            )
        if note and note["given_up"]:
            return
