"""The GPU's power beside a trial: the sampler that jobs run, writing into the trial's log."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evaluators.cluster import ClusterProfile
from evaluators.program import AttemptEnd
from evaluators.program.power import SAMPLER, Energy
from evaluators.program.trainer import TrainerProgram
from evaluators.trial import LOG, TrialOutcome, TrialRequest

# `read` ends with this process, however it ends, and with its shell the sampler.
_SCRIPT = f"{SAMPLER}\nsample </dev/null &\nread -r _\n"
_ASK = ("nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits")
ASK_LIMIT_S = 10.0
SEVERAL = "the machine has several GPUs, and the power of the one that trains is not told apart"


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
