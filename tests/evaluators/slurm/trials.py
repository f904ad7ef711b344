"""Small trials that really run on nodes, and ways to wait for them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.measurement.metrics import AccumulationMeasurement
from autotune.schemas.choices import TrialState
from evaluators.attempt import Attempt
from evaluators.cluster.profile import ClusterProfile, Polling, Scheduling
from evaluators.program import AttemptEnd, Launcher
from evaluators.program.outcome import log_of
from evaluators.slurm.attempt_files import read_attempt_files
from evaluators.slurm.backend import SlurmBackend
from evaluators.training_log import Cause
from evaluators.trial import Backend, TrialOutcome, TrialProgress, TrialProtocol, TrialRequest
from search_spaces.machine import Machine
from search_spaces.transformer import Transformer
from tests.cluster.cluster import Cluster
from tests.evaluators.local.trials import machine as local_machine
from tests.evaluators.local.trials import strategy
from tests.patience import PATIENCE_S, until

PROFILE = ClusterProfile(
    name="test",
    slurm=Scheduling(exclusive=False, partition="batch"),
    polling=Polling(interval_s=0.2, command_limit_s=3.0, settle_s=1.5, full_queue_pause_s=0.2),
)
"""Nodes are shared, so that many small trials run side by side."""

QUICK = "{srun} bash -c 'echo \"rank $SLURM_PROCID\"' && echo 0.25 >result"
"""A trial of one step that writes what it measured."""

COUNTED = f"echo run >>../runs; sleep 1; {QUICK}"
"""Leaves a line for each time that it ran."""

SLOW_FIRST = f"[[ $PWD == *attempt-1 ]] && sleep 1000; {QUICK}"
"""Its first attempt has to be ended."""

REFUSED_FIRST = f"[[ $PWD == *attempt-1 ]] && {{ srun --jobid=999999 true; exit; }}; {QUICK}"
"""Slurm makes no step for its first attempt."""

NODE_FAILS_FIRST = (
    "[[ $PWD == *attempt-1 ]] && { echo 'srun: error: Node failure on n05'; exit 0; }; " + QUICK
)
"""The node fails under its first attempt, of which srun says so and yet ends well."""


FAULTY_N01 = (
    "{srun} bash -c 'if [[ $SLURMD_NODENAME == n01 ]]; then echo "
    '"[rank$SLURM_PROCID]: RuntimeError: CUDA error: uncorrectable ECC error encountered" >&2; '
    "exit 1; fi; sleep 0.2' && echo 0.25 >result"
)
"""A GPU of the node n01 is faulty."""


@dataclass(frozen=True, kw_only=True)
class Lines:
    """A program of a few lines of bash; `{srun}` in them starts each task.

    A trial measures the seconds in the file `result`, and crashes with the last line of its log.
    """

    text: str = QUICK
    name: str = "lines"

    def files(self, request: TrialRequest, folder: Path) -> Mapping[str, str]:  # noqa: ARG002
        return {"token.txt": request.token}

    def commands(
        self,
        request: TrialRequest,  # noqa: ARG002
        folder: Path,  # noqa: ARG002
        launcher: Launcher,
    ) -> str:
        return self.text.replace("{srun}", launcher.command())

    def cause(self, request: TrialRequest, folder: Path) -> Cause | None:  # noqa: ARG002
        return log_of(folder).failure

    def outcome(self, request: TrialRequest, folder: Path, ended: AttemptEnd) -> TrialOutcome:
        log = folder / "trial.log"
        text = log.read_text(errors="replace") if log.exists() else ""
        outcome = TrialOutcome(
            status=ended.status or TrialState.CRASHED,
            started_at=ended.started_at,
            duration_s=ended.duration_s,
            simulated=False,
            error=ended.reason or f"exit code {ended.exit_code}: {(text.split(chr(10)))[-2:-1]}",
            log_tail=text[-2000:],
            log_path=str(log),
            host=ended.host,
            job_id=ended.job_id,
        )
        if ended.status or ended.exit_code != 0:
            return outcome
        try:
            seconds = float((folder / "result").read_text())
        except (OSError, ValueError):
            return replace(outcome, error="its result cannot be read")
        measured = tuple(
            AccumulationMeasurement(gradient_accumulation_steps=gas, iteration_times_s=(seconds,))
            for gas in request.protocol.accumulations
        )
        return replace(outcome, status=TrialState.OK, error=None, measurements=measured)


class Backends:
    """Makes backends of a cluster, one for each text of a program, and closes them all."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._made: list[tuple[str, SlurmBackend]] = []

    def __enter__(self) -> Backends:
        return self

    def __exit__(self, *error: object) -> None:
        for _, backend in self._made:
            backend.close()

    def __getitem__(self, text: str) -> SlurmBackend:
        """The last one of this text."""
        return next(backend for known, backend in reversed(self._made) if known == text)

    def make(self, text: str = QUICK, *, profile: ClusterProfile = PROFILE) -> SlurmBackend:
        backend = SlurmBackend(profile, program=Lines(text=text))
        self._made.append((text, backend))
        return backend


def machine(gpus: int = 2) -> Machine:
    return replace(local_machine(gpus), name="virtual", gpu="none", max_nodes=8)


def request(trials: Path, token: str = "trial-a", **changes: Any) -> TrialRequest:
    """Of one node; `nodes` and `time_limit_s` may differ."""
    nodes = changes.get("nodes", 1)
    return TrialRequest(
        token=token,
        transformer=Transformer.gpt(
            "tiny", num_layers=4, hidden_size=32, num_attention_heads=4, seq_length=16
        ),
        machine=machine(),
        strategy=strategy(num_nodes=nodes),
        protocol=TrialProtocol(
            accumulations=(1, 2), time_limit_s=changes.get("time_limit_s", PATIENCE_S)
        ),
        directory=trials / token,
    )


def standing(backend: Backend, trial: TrialRequest) -> TrialProgress:
    progress = backend.poll([trial])[trial.token]
    assert isinstance(progress, TrialProgress), progress
    return progress


def finish(backend: Backend, *trials: TrialRequest) -> Sequence[TrialOutcome]:
    """The outcome of each, in order."""
    outcomes: dict[str, TrialOutcome] = {}

    def all_ended() -> bool:
        answers = backend.poll([each for each in trials if each.token not in outcomes])
        outcomes.update({k: v for k, v in answers.items() if isinstance(v, TrialOutcome)})
        return len(outcomes) == len(trials)

    until(all_ended, progress=lambda: len(outcomes))
    return [outcomes[each.token] for each in trials]


def run(backend: Backend, *trials: TrialRequest) -> Sequence[TrialOutcome]:
    """Submit them, and wait for their ends."""
    for each in trials:
        backend.submit(each)
    return finish(backend, *trials)


def runs(trial: TrialRequest) -> int:
    """How often a `COUNTED` trial ran."""
    return len((trial.directory / "runs").read_text().splitlines())


def abandoned(trial: TrialRequest, number: int = 1) -> dict[str, Any]:
    """Why that attempt was abandoned."""
    path = trial.directory / f"attempt-{number}" / "abandoned.json"
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def begun(trial: TrialRequest, number: int = 1) -> bool:
    """Whether a job runs that attempt, or ran it."""
    return read_attempt_files(Attempt(request=trial, number=number).folder).claim is not None


def wait_begun(backend: SlurmBackend, trial: TrialRequest, number: int = 1) -> None:
    """Until a job runs that attempt."""
    until(lambda: backend.poll([trial]) and begun(trial, number))
