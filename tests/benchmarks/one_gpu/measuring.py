"""Runs planned trials one after the other, as the `local` backend does, into a table."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from autotune.cost_model.parameters import is_cpu
from autotune.schemas.choices import TrialState
from evaluators.cluster import ClusterProfile
from evaluators.local.backend import LocalBackend
from evaluators.program import AttemptEnd
from evaluators.program.power import SAMPLER
from evaluators.program.trainer import TrainerProgram
from evaluators.trainer.libraries import device_of_trials
from evaluators.trial import LOG, TrialOutcome, TrialProtocol, TrialRequest
from search_spaces.catalog.local import local_machine, machine_of_cpus
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from tests.benchmarks.one_gpu.plan import PlannedTrial, one_gpu
from tests.benchmarks.one_gpu.table import MeasuredTrial, append, line, opened

COMMAND = "python -m tests.benchmarks.one_gpu measure"
MEASURED_S = 5.0
"""Aimed at for the iterations that count: power comes once a second."""
FEWEST_ITERATIONS, MOST_ITERATIONS = 3, 40
TIME_LIMIT_S = 240.0
CRASHES = 3
"""In a row, after which something is wrong with more than a trial."""

# `read` ends with this process, however it ends, and with its shell the sampler.
_SCRIPT = f"{SAMPLER}\nsample </dev/null &\nread -r _\n"
_ASK = ("nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits")
SEVERAL = "the machine has several GPUs, and the power of the one that trains is not told apart"


class Broken(Exception):
    """Trials do not run whatever is tried; says what happened to the last one."""


def machine_here() -> tuple[Machine, int]:
    """Return this machine with its first GPU, or with one rank on its CPU, and how many GPUs it
    has; raises InvalidInput where neither goes."""
    if not (find_spec("torch") and find_spec("deepspeed")):
        reason = "torch and deepspeed are not installed: pip install 'autotune[trials]'"
        raise InvalidInput("python", sys.executable, reason)
    if device_of_trials() == "cpu":
        return one_gpu(machine_of_cpus()), 1
    whole = local_machine()
    if is_cpu(whole):
        raise InvalidInput("machine", whole.description, "nvidia-smi does not list its GPU")
    return replace(one_gpu(whole), gpu_idle_watt=_idle_watt()), whole.gpus_per_node


def _idle_watt() -> float | None:
    try:
        done = subprocess.run(_ASK, capture_output=True, text=True, timeout=10.0, check=False)
        return float(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None


def measure(
    trials: Sequence[PlannedTrial],
    file: Path,
    machine: Machine,
    *,
    gpus: int = 1,
    say: Callable[[str], None],
) -> None:
    """Run what the file has no row of yet, and add each row as soon as it is known.

    A trial that crashed before is tried again.

    Raises:
        InvalidInput: the file cannot be used.
        Broken: several trials in a row crashed.
    """
    rows = [row for row in opened(file, machine) if row.status != "crashed"]
    done = {(row.transformer, row.strategy) for row in rows}
    left = [trial for trial in trials if (trial.transformer, trial.strategy) not in done]
    say(f"{machine.description}: {len(left)} of {len(trials)} trials into {file}\n")
    crashes, start, backend = 0, time.monotonic(), LocalBackend()
    try:
        with tempfile.TemporaryDirectory(prefix="one-gpu-") as folder:
            for number, trial in enumerate(left, 1):
                say(f"{number}/{len(left)}  {title(trial)}: ")
                request = request_of(trial, machine, Path(folder) / f"trial-{number}")
                row = _measured(trial, request, backend, power_is_known=gpus == 1)
                append(file, line(row, machine))
                minutes = (time.monotonic() - start) / number * (len(left) - number) / 60
                say(f"{result(row)} (about {math.ceil(minutes)} min left)\n")
                crashes = crashes + 1 if row.status == "crashed" else 0
                if crashes == CRASHES:
                    raise Broken(f"{CRASHES} trials in a row crashed; the last one: {row.note}")
    finally:
        backend.close()


def request_of(trial: PlannedTrial, machine: Machine, directory: Path) -> TrialRequest:
    """Measured only at the strategy's own GAS, as confirmations are."""
    wanted = math.ceil(MEASURED_S / trial.predicted_time_s)
    iterations = min(max(wanted, FEWEST_ITERATIONS), MOST_ITERATIONS)
    return TrialRequest(
        token=directory.name,
        transformer=trial.transformer,
        machine=machine,
        strategy=trial.strategy,
        protocol=TrialProtocol(
            accumulations=(trial.strategy.gradient_accumulation_steps,),
            warmup_iterations=2,
            measured_iterations=FEWEST_ITERATIONS if is_cpu(machine) else iterations,
            time_limit_s=TIME_LIMIT_S,
        ),
        directory=directory,
    )


def _measured(
    trial: PlannedTrial, request: TrialRequest, backend: LocalBackend, *, power_is_known: bool
) -> MeasuredTrial:
    with _sampled(request.directory):
        backend.submit(request)
        while not isinstance(outcome := backend.poll([request]).get(request.token), TrialOutcome):
            if outcome is None:
                raise Broken("a trial ended and left no result")
            time.sleep(0.05)
    times = [measured.iteration_time_s for measured in outcome.measurements]
    joules, note = None, outcome.error
    if outcome.status is TrialState.OK:
        joules, note = _energy(request, outcome) if power_is_known else (None, SEVERAL)
    versions = f"Python {sys.version.split()[0]}, torch {version('torch')}"
    return MeasuredTrial(
        transformer=trial.transformer,
        strategy=trial.strategy,
        status=outcome.status.value,
        iteration_time_s=times[0] if times else None,
        peak_memory_gib=max(outcome.peak_memory_gib, default=None) if times else None,
        gpu_joules_per_token=joules,
        framework=f"autotune trainer, DeepSpeed {version('deepspeed')}",
        source=f"{COMMAND}; {request.machine.description}; {versions}",
        note=note or "",
    )


@contextmanager
def _sampled(directory: Path) -> Iterator[None]:
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


def _energy(request: TrialRequest, outcome: TrialOutcome) -> tuple[float | None, str]:
    ended = AttemptEnd(
        status=None,
        reason="",
        exit_code=0,
        started_at=outcome.started_at,
        duration_s=outcome.duration_s,
    )
    program = TrainerProgram(ClusterProfile(name="this machine"))
    read = program.outcome(request, request.directory, ended)
    return read.gpu_joules_per_token, read.energy_note


def title(trial: PlannedTrial) -> str:
    s = trial.strategy
    attention = "flash" if s.flash_attention else "no flash"
    checkpointing = s.activation_checkpointing.replace("none", "no")
    return (
        f"{trial.transformer.name}, MBS {s.micro_batch_size}, GAS {s.gradient_accumulation_steps}, "
        f"ZeRO-{s.zero_stage}, {checkpointing} checkpointing, {attention}, {s.precision}"
    )


def result(row: MeasuredTrial) -> str:
    if row.iteration_time_s is None or row.peak_memory_gib is None:
        return f"{row.status}: {row.note}" if row.status != "oom" else "oom"
    energy = f", {row.gpu_joules_per_token:.3g} J/token" if row.gpu_joules_per_token else ""
    return f"{row.iteration_time_s:.3g} s, {row.peak_memory_gib:.3g} GiB{energy}"
