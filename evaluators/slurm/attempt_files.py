"""One attempt at a trial, and its folder: what survives a crash is what lies here.

    <trials>/ended/<name>          an empty file for each attempt that has ended and is not yet read
    <trials>/failed-nodes          "<node> <name>" for each attempt that a node's failure ended
    <trials>/<token>/result.json   the trial's outcome, once it is known
    <trials>/<token>/cancelled     it is to be ended
    <trials>/<token>/attempt-1/    one attempt; a later one follows a node's failure

and in an attempt's folder, in the order in which they appear:

    job.sh, body.sh, program files  what is run
    intent.json                     about to be submitted, and since when
    job.json                        submitted: what sbatch answered
    claim/job                       begun: "<job id> <epoch> <nodes>", in a folder that only one
                                    job of several can make
    trial.log                       all that it printed
    ended                           its end: "<exit code> <epoch of begin> <epoch of end>"
    abandoned.json                  abandoned, and why: a job that comes later only ends
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from autotune.files import write_whole
from evaluators.trial import TrialRequest

LOG = "trial.log"
ENDED = "ended"
CLAIM = "claim"
INTENT = "intent.json"
JOB = "job.json"
ABANDONED = "abandoned.json"
CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a trial. `number` counts from 1."""

    request: TrialRequest
    number: int

    @cached_property
    def name(self) -> str:
        """Return the name of its job or step: unique, so that it is found again by it.

        A token may be chosen again in another folder, by a search for the same model.
        """
        place = sha256(os.fsencode(self.request.directory.absolute())).hexdigest()
        return f"{self.request.token}.{self.number}-{place[:6]}"

    @property
    def folder(self) -> Path:
        return self.request.directory / f"attempt-{self.number}"

    @property
    def ended_folder(self) -> Path:
        """Return where each attempt of these trials leaves an empty file of its name in the end."""
        return self.request.directory.parent / ENDED

    @property
    def end_notice(self) -> Path:
        """Return the empty file that says that this attempt has ended."""
        return self.ended_folder / self.name

    @property
    def log(self) -> Path:
        return self.folder / LOG


def attempts_of(request: TrialRequest) -> list[Attempt]:
    """Return the attempts that have a folder, first to last."""
    numbers = sorted(
        int(number)
        for folder in request.directory.glob("attempt-*")
        if (number := folder.name.removeprefix("attempt-")).isdigit()
    )
    return [Attempt(request=request, number=number) for number in numbers]


LOG_END_BYTES = 65_536


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The job that began the attempt; `at` is an epoch by the node's clock."""

    job_id: str
    at: float
    nodes: str


@dataclass(frozen=True, kw_only=True)
class ScriptEnd:
    """How the attempt's script ended; both epochs are by the node's clock."""

    exit_code: int
    began_at: float
    ended_at: float

    @property
    def duration_s(self) -> float:
        return max(0.0, self.ended_at - self.began_at)


@dataclass(frozen=True, kw_only=True)
class AttemptFiles:
    """What lies in an attempt's folder.

    Attributes:
        intended_at: epoch by this machine's clock; None: it was never to be submitted.
        first_intended_at: of the first of several tries; otherwise the same.
        job_id: that sbatch answered; None: no answer was written down.
        claimed: whether a job began. Which one may be unknown: then `claim` is None.
        abandoned: another attempt follows, or did.
    """

    intended_at: float | None = None
    first_intended_at: float | None = None
    job_id: str | None = None
    claimed: bool = False
    claim: Claim | None = None
    end: ScriptEnd | None = None
    abandoned: bool = False


def read_attempt_files(folder: Path) -> AttemptFiles:
    """Return what is there; files that are cut, empty or unreadable count as far as they go."""
    try:
        # On NFS a listing sees what a look for one file may not see yet.
        names = set(os.listdir(folder))
    except OSError:
        return AttemptFiles()
    intended_at = _intended_at(folder / INTENT) if INTENT in names else None
    return AttemptFiles(
        intended_at=intended_at,
        first_intended_at=_first_intended_at(folder / INTENT, otherwise=intended_at),
        job_id=_json(folder / JOB).get("job_id") if JOB in names else None,
        claimed=CLAIM in names,
        claim=_claim(folder / CLAIM / "job") if CLAIM in names else None,
        end=_end(folder / ENDED) if ENDED in names else None,
        abandoned=ABANDONED in names,
    )


def read_log_end(folder: Path) -> str:
    """Return the last lines of the attempt's log; empty where there is none."""
    try:
        with (folder / LOG).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_END_BYTES))
            return file.read(LOG_END_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def write_intent(folder: Path, *, name: str, at: float) -> None:
    """Write down that the attempt is about to be submitted; raises OSError."""
    (folder / JOB).unlink(missing_ok=True)
    first_at = _first_intended_at(folder / INTENT, otherwise=at)
    _write(folder / INTENT, {"name": name, "at": at, "first_at": first_at})


def write_job(folder: Path, *, job_id: str) -> None:
    """Write down which job sbatch has made of the attempt; raises OSError."""
    _write(folder / JOB, {"job_id": job_id})


def write_abandoned(folder: Path, *, status: str, reason: str, duration_s: float) -> None:
    """Write down that the attempt is abandoned, and why; raises OSError."""
    _write(folder / ABANDONED, {"status": status, "reason": reason, "duration_s": duration_s})


def abandoned_duration_s(folder: Path) -> float:
    """Return the seconds that an attempt which was abandoned held its nodes."""
    try:
        return float(_json(folder / ABANDONED).get("duration_s", 0.0))
    except (TypeError, ValueError):
        return 0.0


def abandoned_status(folder: Path) -> str | None:
    """Return the status that an abandoned attempt ended with, `unknown` where it is unreadable.

    It is None where the attempt was not abandoned.
    """
    try:
        return str(json.loads((folder / ABANDONED).read_text(encoding="utf-8"))["status"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"


def _write(path: Path, content: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(content))


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _intended_at(path: Path) -> float | None:
    """Return what the file says or, where it cannot be read, when it was written."""
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


def _end(path: Path) -> ScriptEnd | None:
    try:
        code, began_at, ended_at = path.read_text(encoding="utf-8").split()
        return ScriptEnd(exit_code=int(code), began_at=float(began_at), ended_at=float(ended_at))
    except (OSError, ValueError):
        return None


FAILED_NODES = "failed-nodes"


def note_failed_nodes(trials: Path, *, name: str, nodes: Iterable[str]) -> None:
    """Note that these nodes failed under the attempt of this name; noted twice, it counts once.

    A file that cannot be written costs a retry, and no result: it is left as it is.
    """
    lines = "".join(f"{node} {name}\n" for node in nodes)
    with contextlib.suppress(OSError), (trials / FAILED_NODES).open("a", encoding="utf-8") as file:
        file.write(lines)


def nodes_to_exclude(trials: Path, *, failures: int) -> tuple[str, ...]:
    """Return the nodes that failed under at least so many attempts, in order."""
    try:
        lines = (trials / FAILED_NODES).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ()
    under = defaultdict(set)
    for line in lines:
        node, _, name = line.partition(" ")
        under[node].add(name)
    return tuple(sorted(node for node, names in under.items() if len(names) >= failures))
