"""Files of an attempt that is a job or a step. They survive a crash of the service.

In order of appearance (`evaluators.attempt` describes the folder):

    job.sh, body.sh, program files  what is run
    intent.json                     about to be submitted, and since when
    job.json                        submitted: what sbatch answered
    claim/job                       begun: "<job id> <epoch> <nodes>", and in a second line the
                                    job's memory, in a folder that only one job of several can make
    trial.log                       the output
    ended                           its end: "<exit code> <epoch of begin> <epoch of end>"
    abandoned.json                  abandoned, and why: a job that starts later only ends
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.files import raise_if_failing, write_whole
from evaluators.attempt import ABANDONED, ENDED

CLAIM = "claim"
INTENT = "intent.json"
JOB = "job.json"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The job that began the attempt; `at` is an epoch by the node's clock, and `memory` that of
    the host which the job has, if it knows ("60 MB on each node")."""

    job_id: str
    at: float
    nodes: str
    memory: str = ""


@dataclass(frozen=True, kw_only=True)
class ScriptEnd:
    """How the attempt's script ended. `began_at` is an epoch by the node's clock; `ended_at` is
    `began_at` plus the duration, even if the clock was set meanwhile."""

    exit_code: int
    began_at: float
    ended_at: float

    @property
    def duration_s(self) -> float:
        return max(0.0, self.ended_at - self.began_at)


@dataclass(frozen=True, kw_only=True)
class AttemptFiles:
    """Contents of an attempt's folder.

    Attributes:
        intended_at: epoch by this machine's clock; None: it was never to be submitted.
        first_intended_at: the same for the first of several tries.
        job_id: sbatch's answer; None: no answer was recorded.
        claimed: whether a job began. If it is unknown which, `claim` is None.
        abandoned: whether another attempt follows, or did.
    """

    intended_at: float | None = None
    first_intended_at: float | None = None
    job_id: str | None = None
    claimed: bool = False
    claim: Claim | None = None
    end: ScriptEnd | None = None
    abandoned: bool = False


def read_attempt_files(folder: Path) -> AttemptFiles:
    """Read the folder; truncated, empty or unreadable files count as far as they go.

    Raises:
        OSError: the file system fails, so nothing is known about the folder.
    """
    try:
        # On NFS a listing sees what a look for one file may not see yet.
        names = set(os.listdir(folder))
    except OSError as error:
        raise_if_failing(error)
        return AttemptFiles()
    intended_at, first_intended_at = _intent(folder / INTENT) if INTENT in names else (None, None)
    return AttemptFiles(
        intended_at=intended_at,
        first_intended_at=first_intended_at,
        job_id=_json(folder / JOB).get("job_id") if JOB in names else None,
        claimed=CLAIM in names,
        claim=_claim(folder / CLAIM / "job") if CLAIM in names else None,
        end=_end(folder / ENDED) if ENDED in names else None,
        abandoned=ABANDONED in names,
    )


def write_intent(folder: Path, *, name: str, at: float) -> None:
    """Record that the attempt is about to be submitted. Raises OSError."""
    (folder / JOB).unlink(missing_ok=True)
    _, first_at = _intent(folder / INTENT)
    content = {"name": name, "at": at, "first_at": at if first_at is None else first_at}
    write_whole(folder / INTENT, json.dumps(content))


def write_job(folder: Path, *, job_id: str) -> None:
    write_whole(folder / JOB, json.dumps({"job_id": job_id}))


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise_if_failing(error)
        return {}
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _intent(path: Path) -> tuple[float | None, float | None]:
    """Return the times of the last and of the first try; without a readable one, when the file was
    modified."""
    content = _json(path)
    try:
        at = float(content["at"])
        return at, float(content.get("first_at", at))
    except (KeyError, TypeError, ValueError):
        pass
    try:
        at = path.stat().st_mtime
    except OSError:
        return None, None
    return at, at


def _words(path: Path, count: int) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split(maxsplit=count - 1)
    except OSError as error:
        raise_if_failing(error)
    except ValueError:
        pass
    return []


def _claim(path: Path) -> Claim | None:
    try:
        job_id, at, nodes = _words(path, 3)
        nodes, _, memory = nodes.partition("\n")
        return Claim(job_id=job_id, at=float(at), nodes=nodes.strip(), memory=memory.strip())
    except ValueError:
        return None


def _end(path: Path) -> ScriptEnd | None:
    try:
        code, began_at, ended_at = _words(path, 3)
        return ScriptEnd(exit_code=int(code), began_at=float(began_at), ended_at=float(ended_at))
    except ValueError:
        return None
