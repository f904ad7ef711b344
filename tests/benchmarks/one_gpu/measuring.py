"""Runs planned trials one after the other, as the `local` backend does, into a table."""

from __future__ import annotations

import math
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from autotune.cost_model.parameters import is_cpu
from autotune.schemas.choices import TrialState
from evaluators.cluster import ClusterProfile
from evaluators.local.backend import LocalBackend
from evaluators.program import AttemptEnd
from evaluators.program.power import SAMPLER, Energy
from evaluators.program.trainer import TrainerProgram
from evaluators.trainer.libraries import device_of_trials
from evaluators.trial import LOG, TrialOutcome, TrialProtocol, TrialRequest
from search_spaces.catalog.local import local_machine, machine_of_cpus
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from tests.benchmarks.one_gpu.plan import PlannedTrial, one_gpu
from tests.benchmarks.one_gpu.table import MeasuredTrial, append, begin, header, line, read_table

COMMAND = "python -m tests.benchmarks.one_gpu measure"
POLL_INTERVAL_S = 0.05
MEASURED_S = 5.0
"""Aimed at for the iterations that count: power comes once a second."""
FEWEST_ITERATIONS, MOST_ITERATIONS = 3, 40
WARMUP_ITERATIONS = 2
TIME_LIMIT_S = 240.0
CRASHES = 3
"""In a row, after which something is wrong with more than a trial."""

# `read` ends with this process, however it ends, and with its shell the sampler.
_SCRIPT = f"{SAMPLER}\nsample </dev/null &\nread -r _\n"
_ASK = ("nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits")
ASK_LIMIT_S = 10.0
SEVERAL = "the machine has several GPUs, and the power of the one that trains is not told apart"


class Broken(Exception):
    """Trials do not run whatever is tried; says what happened to the last one."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What trials run on.

    Attributes:
        machine: with one GPU.
        gpus: that the whole machine has; power is told only where it has one.
    """

    backend: LocalBackend
    machine: Machine
    gpus: int

    def run(self, trial: PlannedTrial, directory: Path) -> MeasuredTrial:
        """The trial from its start to its row."""
        request = request_of(trial, self.machine, directory)
        alone = self.gpus == 1
        with sampled(directory) if alone else nullcontext():
            self.backend.submit(request)
            outcome = self._outcome(request)
        return row_of(trial, outcome, self._energy(request, outcome), machine=self.machine)

    def _outcome(self, request: TrialRequest) -> TrialOutcome:
        while True:
            results = self.backend.poll([request]).get(request.token)
            if results is None:
                raise Broken("a trial ended and left no result")
            if isinstance(results, TrialOutcome):
                return results
            time.sleep(POLL_INTERVAL_S)

    def _energy(self, request: TrialRequest, outcome: TrialOutcome) -> Energy:
        if outcome.status is not TrialState.OK:
            return Energy(gpu_joules_per_token=None, note="")
        if self.gpus != 1:
            return Energy(gpu_joules_per_token=None, note=SEVERAL)
        return energy_of(request, outcome)


def bench_here() -> Bench:
    """This machine's first GPU, or one rank on its CPU; raises InvalidInput where neither goes."""
    if not (find_spec("torch") and find_spec("deepspeed")):
        reason = "torch and deepspeed are not installed: pip install 'autotune[trials]'"
        raise InvalidInput("python", sys.executable, reason)
    if device_of_trials() == "cpu":
        machine = one_gpu(machine_of_cpus())
        return Bench(backend=LocalBackend(), machine=machine, gpus=1)
    whole = local_machine()
    if is_cpu(whole):
        raise InvalidInput("machine", whole.description, "nvidia-smi does not tell of its GPU")
    machine = replace(one_gpu(whole), gpu_idle_watt=idle_watt())
    return Bench(backend=LocalBackend(), machine=machine, gpus=whole.gpus_per_node)


def request_of(trial: PlannedTrial, machine: Machine, directory: Path) -> TrialRequest:
    """Measured at the strategy's own GAS alone, as confirmations are."""
    wanted = math.ceil(MEASURED_S / trial.predicted_time_s)
    iterations = min(max(wanted, FEWEST_ITERATIONS), MOST_ITERATIONS)
    return TrialRequest(
        token=directory.name,
        transformer=trial.transformer,
        machine=machine,
        strategy=trial.strategy,
        protocol=TrialProtocol(
            accumulations=(trial.strategy.gradient_accumulation_steps,),
            warmup_iterations=WARMUP_ITERATIONS,
            measured_iterations=FEWEST_ITERATIONS if is_cpu(machine) else iterations,
            time_limit_s=TIME_LIMIT_S,
        ),
        directory=directory,
    )


def row_of(
    trial: PlannedTrial, outcome: TrialOutcome, energy: Energy, *, machine: Machine
) -> MeasuredTrial:
    times = [measured.iteration_time_s for measured in outcome.measurements]
    return MeasuredTrial(
        transformer=trial.transformer,
        strategy=trial.strategy,
        status=outcome.status.value,
        iteration_time_s=times[0] if times else None,
        peak_memory_gib=max(outcome.peak_memory_gib, default=None) if times else None,
        gpu_joules_per_token=energy.gpu_joules_per_token,
        framework=f"autotune trainer, DeepSpeed {_version('deepspeed')}",
        source=f"{COMMAND}; {machine.description}; {software()}",
        note=outcome.error or energy.note,
    )


def software() -> str:
    return f"Python {platform.python_version()}, torch {_version('torch')}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def opened(file: Path, machine: Machine) -> list[MeasuredTrial]:
    """The rows that are there already; a new file gets its header.

    Raises:
        InvalidInput: the file is no table of trials, of another GPU, or cannot be written.
        TableError: one of its rows cannot be read.
    """
    try:
        begin(file)
    except OSError as error:
        reason = f"cannot be written: {error.strerror}"
        raise InvalidInput("--output", str(file), reason) from None
    if file.read_text("utf-8", "replace") == header():
        return []
    table = read_table(file)
    for name in ("gpu", "memory_gib"):
        there, here = getattr(table.machine, name), getattr(machine, name)
        if there != here:
            reason = f"has trials of another machine ({name} {there}; here it is {here})"
            raise InvalidInput("--output", str(file), reason, valid="a new file for each GPU")
    return list(table.rows)


def measure(
    trials: Sequence[PlannedTrial], file: Path, bench: Bench, *, say: Callable[[str], None]
) -> None:
    """Run what the file has no row of yet, and add each row as soon as it is known.

    A trial that crashed before is tried again.

    Raises:
        InvalidInput: the file cannot be used.
        Broken: several trials in a row crashed.
    """
    done = {row.key for row in opened(file, bench.machine) if row.status != "crashed"}
    left = [trial for trial in trials if trial.key not in done]
    if len(left) < len(trials):
        say(f"{len(trials) - len(left)} of {len(trials)} trials are in {file} already\n")
    crashes, start = 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="one-gpu-") as folder:
        for number, trial in enumerate(left, 1):
            say(f"{number}/{len(left)}  {title(trial)}: ")
            row = bench.run(trial, Path(folder) / f"trial-{number}")
            append(file, line(row, bench.machine))
            say(f"{result(row)}{_remaining(start, number, len(left))}\n")
            crashes = crashes + 1 if row.status == "crashed" else 0
            if crashes == CRASHES:
                raise Broken(f"{CRASHES} trials in a row crashed; the last one: {row.note}")


def title(trial: PlannedTrial) -> str:
    s = trial.strategy
    attention = "flash" if s.flash_attention else "no flash"
    checkpointing = s.activation_checkpointing.replace("none", "no")
    return (
        f"{trial.transformer.name}, MBS {s.micro_batch_size}, GAS {s.gradient_accumulation_steps}, "
        f"ZeRO-{s.zero_stage}, {checkpointing} checkpointing, {attention}, "
        f"{s.precision}"
    )


def result(row: MeasuredTrial) -> str:
    if row.iteration_time_s is None or row.peak_memory_gib is None:
        return f"{row.status}: {row.note}" if row.status != "oom" else "oom"
    energy = f", {row.gpu_joules_per_token:.3g} J/token" if row.gpu_joules_per_token else ""
    return f"{row.iteration_time_s:.3g} s, {row.peak_memory_gib:.3g} GiB{energy}"


def _remaining(start: float, done: int, trials: int) -> str:
    if done == trials:
        return ""
    seconds = (time.monotonic() - start) / done * (trials - done)
    minutes = math.ceil(seconds / 60)
    return f" (about {minutes} min left)"


# --- the GPU's power beside a trial: the sampler that jobs run, writing into the trial's log ---


@contextmanager
def sampled(directory: Path) -> Iterator[None]:
    """Once a second the power of all GPUs goes into the log of the trial in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    with (
        (directory / LOG).open("ab") as log,
        subprocess.Popen(["bash", "-c", _SCRIPT], stdin=subprocess.PIPE, stdout=log) as sampler,
    ):
        try:
            yield
        finally:
            assert sampler.stdin
            sampler.stdin.close()


def energy_of(request: TrialRequest, outcome: TrialOutcome) -> Energy:
    """Of a trial that ended well beside `sampled`, read as a job's is."""
    ended = AttemptEnd(
        status=None,
        reason="",
        exit_code=0,
        started_at=outcome.started_at,
        duration_s=outcome.duration_s,
    )
    program = TrainerProgram(ClusterProfile(name="this machine"))
    read = program.outcome(request, request.directory, ended)
    return Energy(gpu_joules_per_token=read.gpu_joules_per_token, note=read.energy_note)


def idle_watt() -> float | None:
    """What the one GPU draws now; None where there is no nvidia-smi, or it does not tell."""
    try:
        done = subprocess.run(
            _ASK, capture_output=True, text=True, timeout=ASK_LIMIT_S, check=False
        )
        return float(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
