"""The interface between a cluster job and the program that trains in it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from autotune.schemas.choices import TrialState
from evaluators.training_log import Cause
from evaluators.trial import TrialOutcome, TrialRequest


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """How a job script starts one task per GPU.

    Attributes:
        srun: words of the command before the task (`srun`, `--nodes=2`, …).
        container: words that start a task's command inside a container; empty without one.
    """

    srun: tuple[str, ...]
    container: tuple[str, ...] = ()

    def command(self, *words: str) -> str:
        return " ".join([shlex.join(self.srun), shlex.join(self.container), *words])


@dataclass(frozen=True, kw_only=True)
class AttemptEnd:
    """What is known about an ended attempt, besides its files.

    Attributes:
        status: if Slurm or the script determines it: timeout, node_fail, preempted, cancelled,
            lost, oom (of the host's memory); None if the program's files do.
        reason: why, as a sentence; empty if status is None.
        exit_code: of the program's commands; None if it was never written.
        duration_s: for which the nodes were held.
        host: the nodes in Slurm's notation.
        memory: of the host that the job had on each node, such as "60 MB"; empty if unknown.
    """

    status: TrialState | None
    reason: str
    exit_code: int | None
    started_at: datetime
    duration_s: float
    host: str = ""
    job_id: str | None = None
    memory: str = ""


class Program(Protocol):
    """Trains one strategy in a job. Text in, text out; nothing here calls Slurm."""

    @property
    def name(self) -> str:
        """Its name in profiles."""

    def files(self, request: TrialRequest, folder: Path) -> Mapping[str, str]:
        """Return the files to write into the attempt's folder before submission, by name.

        Raises:
            InvalidInput: this program cannot run the request's strategy.
            OSError: a shared file of the trials, such as a dataset, could not be written.
        """

    def commands(self, request: TrialRequest, folder: Path, launcher: Launcher) -> str:
        """Return bash that trains and measures, run in `folder`; its exit code is the attempt's.

        Output goes to the attempt's log.
        """

    def cause(self, request: TrialRequest, folder: Path) -> Cause | None:
        """Return the root cause in the log in `folder`, if there is one. Never raises."""

    def outcome(self, request: TrialRequest, folder: Path, ended: AttemptEnd) -> TrialOutcome:
        """Return the outcome from the log and the files in `folder`. Never raises."""
