"""What an attempt's folder tells about it; see `evaluators.slurm.attempt`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.files import write_whole
from evaluators.slurm.attempt import CLAIM, ENDED, INTENT, JOB, LOG, OVER

LOG_END_BYTES = 65_536


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The job that began the attempt; `at` is an epoch by the node's clock."""

    job_id: str
    at: float
    nodes: str


@dataclass(frozen=True, kw_only=True)
class End:
    """How the attempt's script ended; both epochs are by the node's clock."""

    exit_code: int
    began_at: float
    ended_at: float

    @property
    def duration_s(self) -> float:
        return max(0.0, self.ended_at - self.began_at)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What lies in an attempt's folder.

    Attributes:
        intended_at: epoch by this machine's clock; None: it was never to be submitted.
        first_intended_at: likewise, of the first of several tries.
        job_id: that sbatch answered; None: no answer was written down.
        claimed: whether a job began. Which one may be unknown: then `claim` is None.
        over: given up.
    """

    intended_at: float | None = None
    first_intended_at: float | None = None
    job_id: str | None = None
    claimed: bool = False
    claim: Claim | None = None
    end: End | None = None
    over: bool = False


def read_evidence(folder: Path) -> Evidence:
    """What is there. Files that are cut, empty or unreadable count as far as they can be read."""
    try:
        # On NFS a listing sees what a look for one file may not see yet.
        names = set(os.listdir(folder))
    except OSError:
        return Evidence()
    intended_at = _intended_at(folder / INTENT) if INTENT in names else None
    return Evidence(
        intended_at=intended_at,
        first_intended_at=_first_intended_at(folder / INTENT, otherwise=intended_at),
        job_id=_json(folder / JOB).get("job_id") if JOB in names else None,
        claimed=CLAIM in names,
        claim=_claim(folder / CLAIM / "job") if CLAIM in names else None,
        end=_end(folder / ENDED) if ENDED in names else None,
        over=OVER in names,
    )


def read_log_end(folder: Path) -> str:
    """The last lines of the attempt's log; empty where there is none."""
    try:
        with (folder / LOG).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_END_BYTES))
            return file.read(LOG_END_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def write_intent(folder: Path, *, name: str, at: float) -> None:
    """About to be submitted; raises OSError."""
    (folder / JOB).unlink(missing_ok=True)
    first_at = _first_intended_at(folder / INTENT, otherwise=at)
    _write(folder / INTENT, {"name": name, "at": at, "first_at": first_at})


def write_job(folder: Path, *, job_id: str) -> None:
    """Submitted; raises OSError."""
    _write(folder / JOB, {"job_id": job_id})


def write_over(folder: Path, *, status: str, reason: str, duration_s: float) -> None:
    """Given up; raises OSError."""
    _write(folder / OVER, {"status": status, "reason": reason, "duration_s": duration_s})


def over_duration_s(folder: Path) -> float:
    """Seconds that an attempt which was given up held its nodes."""
    try:
        return float(_json(folder / OVER).get("duration_s", 0.0))
    except (TypeError, ValueError):
        return 0.0


def _write(path: Path, content: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(content))


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _intended_at(path: Path) -> float | None:
    """Of a file that cannot be read, the time when it was written."""
    try:
        return float(_json(path)["at"])
    except (KeyError, TypeError, ValueError):
        pass
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _first_intended_at(path: Path, *, otherwise: float | None) -> float | None:
    try:
        return float(_json(path)["first_at"])
    except (KeyError, TypeError, ValueError):
        return otherwise


def _claim(path: Path) -> Claim | None:
    try:
        job_id, at, nodes = path.read_text(encoding="utf-8").split(maxsplit=2)
        return Claim(job_id=job_id, at=float(at), nodes=nodes.strip())
    except (OSError, ValueError):
        return None


def _end(path: Path) -> End | None:
    try:
        code, began_at, ended_at = path.read_text(encoding="utf-8").split()
        return End(exit_code=int(code), began_at=float(began_at), ended_at=float(ended_at))
    except (OSError, ValueError):
        return None
