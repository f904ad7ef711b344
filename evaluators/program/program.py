"""The seam between a job of a cluster and what trains in it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from autotune.schemas import TrialState
from evaluators.trial import TrialOutcome, TrialRequest


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """How a job's script starts one task for each GPU.

    Attributes:
        srun: the words of the command up to the task (`srun`, `--nodes=2`, …).
        container: words that start a task's command inside a container; empty without one.
    """

    srun: tuple[str, ...]
    container: tuple[str, ...] = ()

    def command(self, *words: str) -> str:
        """Return a line of bash that runs `words` (of bash, quoted where need be) as each task."""
        return " ".join([shlex.join(self.srun), shlex.join(self.container), *words])


@dataclass(frozen=True, kw_only=True)
class AttemptEnd:
    """What is known of an attempt that has ended, besides the files that it left.

    Attributes:
        status: where Slurm or the script decided it: timeout, node_fail, preempted, cancelled,
            lost, oom; None where the program's own files decide.
        reason: why, in a sentence; empty where status is None.
        exit_code: of the program's commands; None where it was never written.
        duration_s: that the nodes were held.
        host: the nodes, as Slurm writes them.
    """

    status: TrialState | None
    reason: str
    exit_code: int | None
    started_at: datetime
    duration_s: float
    host: str = ""
    job_id: str | None = None


class Program(Protocol):
    """Trains one strategy in a job. Text in, text out; nothing here calls Slurm."""

    @property
    def name(self) -> str:
        """The name by which profiles choose it."""

    def files(self, request: TrialRequest, folder: Path) -> Mapping[str, str]:
        """Return by name the files that go into the attempt's folder before it is submitted.

        Raises:
            InvalidInput: this program cannot run the request's strategy.
            OSError: what the trials share, such as a dataset, could not be written.
        """

    def commands(self, request: TrialRequest, folder: Path, launcher: Launcher) -> str:
        """Return bash that trains and measures, run in `folder`; its exit code is the attempt's.

        What they print goes to the attempt's log.
        """

    def outcome(self, request: TrialRequest, folder: Path, ended: AttemptEnd) -> TrialOutcome:
        """Return what came of it, from the log and the files in `folder`. Never raises."""
