"""One attempt of a program as a real job, to its end."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from evaluators.attempt import Attempt
from evaluators.cluster.profile import ClusterProfile, Scheduling
from evaluators.program import AttemptEnd, Program
from evaluators.slurm.attempt_files import ScriptEnd, read_attempt_files
from evaluators.slurm.batch_script import JOB_SCRIPT, job_script, write_scripts
from evaluators.trial import TrialOutcome, TrialRequest
from tests.patience import until

SHARED = Scheduling(exclusive=False, partition="batch")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A submitted attempt; the commands of this process speak to its cluster."""

    program: Program
    attempt: Attempt
    job_id: str

    @classmethod
    def submit(cls, program: Program, profile: ClusterProfile, request: TrialRequest) -> Job:
        attempt = Attempt(request=request, number=1)
        write_scripts(attempt, profile, program, job_script(attempt, profile))
        done = subprocess.run(
            ["sbatch", "--parsable", str(attempt.folder / JOB_SCRIPT)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return cls(program=program, attempt=attempt, job_id=done.stdout.strip())

    @property
    def log(self) -> str:
        return self.attempt.log.read_text(errors="replace") if self.attempt.log.exists() else ""

    def until(self, there: Callable[[], object], what: str) -> None:
        until(there, f"{what}; its log: {self.attempt.log}")

    def ended(self) -> ScriptEnd:
        """How its script ended, once it has."""
        self.until(lambda: read_attempt_files(self.attempt.folder).end, "ended")
        end = read_attempt_files(self.attempt.folder).end
        assert end
        return end

    def outcome(self) -> TrialOutcome:
        end = self.ended()
        ended = AttemptEnd(
            status=None,
            reason="",
            exit_code=end.exit_code,
            started_at=datetime.fromtimestamp(end.began_at, UTC),
            duration_s=end.duration_s,
            host="n[01-02]",
            job_id=self.job_id,
        )
        return self.program.outcome(self.attempt.request, self.attempt.folder, ended)


def ended(exit_code: int | None = 0, **others: object) -> AttemptEnd:
    """What is known of an attempt that ended by itself."""
    known: dict[str, object] = {
        "status": None,
        "reason": "",
        "exit_code": exit_code,
        "started_at": datetime(2026, 1, 1, tzinfo=UTC),
        "duration_s": 60.0,
        "host": "n01",
        "job_id": "7",
    }
    return AttemptEnd(**{**known, **others})  # type: ignore[arg-type]
