"""Convert what an attempt left behind into the outcome of its trial."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.schemas.choices import TrialState
from evaluators.disk_room import is_unwritable, unwritable
from evaluators.program.power import Energy
from evaluators.program.program import AttemptEnd
from evaluators.training_log import Cause, CauseKind, TrainingLog, read_log
from evaluators.trial import LOG, TrialOutcome, log_tail

VERSIONS = "versions.json"

_WRITE_VERSIONS = f"""import json, platform, sys
from importlib.metadata import PackageNotFoundError, version
found = {{"python": platform.python_version()}}
for name, expected in json.loads(sys.argv[1]).items():
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        if expected is None:
            continue
        found[name] = "not installed"
    if expected not in (None, found[name]):
        print(name, "is", found[name] + "; the adapter was written for", expected, flush=True)
with open("{VERSIONS}", "w") as file:
    json.dump(found, file)"""

# Messages of our own job scripts, such as for a module of the profile that does not load.
OWN_WORDS = "autotune: "

# Lines that do not come from the program: our own, and those of Slurm's steps.
_NOT_THE_PROGRAMS = ("[autotune power]", "slurmstepd", "srun:")

MOST_OF_A_LINE = 200
"""Maximum characters of a log line in an error."""

# If ranks were ended from outside, Slurm's message may be only in the log.
_STATUS: Mapping[CauseKind, TrialState] = {
    CauseKind.HARDWARE: TrialState.NODE_FAIL,
    CauseKind.OUT_OF_MEMORY: TrialState.OOM,
    CauseKind.TIME_LIMIT: TrialState.TIMEOUT,
    CauseKind.NODE_FAILURE: TrialState.NODE_FAIL,
    CauseKind.PREEMPTED: TrialState.PREEMPTED,
    CauseKind.CANCELLED: TrialState.CANCELLED,
}
# A rank that ended so may leave the others waiting until they are ended.
_LEAVES_OTHERS_WAITING = (CauseKind.HARDWARE, CauseKind.OUT_OF_MEMORY, CauseKind.HOST_MEMORY)
_DEVICES_MEMORY = CauseKind.OUT_OF_MEMORY


def log_of(folder: Path) -> TrainingLog:
    """Return the attempt's parsed log; an empty one if there is no log."""
    try:
        return read_log(folder / LOG)
    except OSError:
        return TrainingLog()


@dataclass(frozen=True, kw_only=True)
class AttemptFailure:
    """Why an attempt failed; `error` is one line."""

    status: TrialState
    error: str


def state_of(cause: Cause, *, on_cpu: bool = False) -> TrialState:
    """Return the state of a trial that ended for this cause.

    Args:
        on_cpu: whether the memory of a layout is the host's.
    """
    if on_cpu and cause.kind is CauseKind.HOST_MEMORY:
        return TrialState.OOM
    return _STATUS.get(cause.kind, TrialState.CRASHED)


def failure_of(
    ended: AttemptEnd, cause: Cause | None, folder: Path, *, on_cpu: bool = False
) -> AttemptFailure | None:
    """Return why the attempt in `folder` failed; None if neither its exit code nor Slurm indicates
    a failure.

    Args:
        cause: root cause in its log, if there is one.
        on_cpu: whether the memory of a layout is the host's.
    """
    if ended.status is None and ended.exit_code == 0:
        return None
    if failure := _of_hardware_or_memory(ended, cause, on_cpu=on_cpu):
        return failure
    if ended.status is TrialState.TIMEOUT:
        return AttemptFailure(status=ended.status, error=ended.reason + _last_words(folder))
    if ended.status is not None:
        return AttemptFailure(status=ended.status, error=ended.reason)
    lines = reversed(log_tail(folder).splitlines())
    own = (line.removeprefix(OWN_WORDS) for line in lines if line.startswith(OWN_WORDS))
    if error := next(own, None):
        return AttemptFailure(status=TrialState.CRASHED, error=error)
    if cause:
        return AttemptFailure(status=state_of(cause), error=cause.error)
    code = "no exit code" if ended.exit_code is None else f"exit code {ended.exit_code}"
    error = f"it ended with {code}; its log does not say why"
    if is_unwritable(folder):  # a program that cannot write its log cannot report that
        error = f"it ended with {code}; {unwritable(folder)}"
        return AttemptFailure(status=TrialState.LOST, error=error)
    return AttemptFailure(status=TrialState.CRASHED, error=error)


def _of_hardware_or_memory(
    ended: AttemptEnd, cause: Cause | None, *, on_cpu: bool
) -> AttemptFailure | None:
    memory = f"; the job had {ended.memory}" if ended.memory else ""
    if ended.status is TrialState.OOM and (cause is None or cause.kind is not _DEVICES_MEMORY):
        status = TrialState.OOM if on_cpu else TrialState.CRASHED
        return AttemptFailure(status=status, error=ended.reason + memory)
    if cause is None or cause.kind not in _LEAVES_OTHERS_WAITING:
        return None
    if ended.status not in (None, TrialState.TIMEOUT, TrialState.OOM):
        return None
    error = cause.error + memory if cause.kind is CauseKind.HOST_MEMORY else cause.error
    return AttemptFailure(status=state_of(cause, on_cpu=on_cpu), error=error)


def _last_words(folder: Path) -> str:
    lines = (line.strip() for line in reversed(log_tail(folder).splitlines()))
    last = next((line for line in lines if line and not line.startswith(_NOT_THE_PROGRAMS)), "")
    return f"; its log ends with: {last[:MOST_OF_A_LINE]}" if last else "; its log is empty"


def failed(failure: AttemptFailure, folder: Path, ended: AttemptEnd) -> TrialOutcome:
    return _outcome(folder, ended, status=failure.status, error=failure.error)


def succeeded(energy: Energy, folder: Path, ended: AttemptEnd, **measured: Any) -> TrialOutcome:
    """Return the outcome of a measured trial.

    Args:
        measured: the fields of `TrialOutcome` that the program read itself.
    """
    return _outcome(
        folder,
        ended,
        status=TrialState.OK,
        gpu_joules_per_token=energy.gpu_joules_per_token,
        energy_note=energy.note,
        **measured,
    )


def _outcome(folder: Path, ended: AttemptEnd, **fields: Any) -> TrialOutcome:
    return TrialOutcome(
        started_at=ended.started_at,
        duration_s=ended.duration_s,
        simulated=False,
        log_tail=log_tail(folder),
        log_path=str(folder / LOG),
        host=ended.host,
        job_id=ended.job_id,
        **fields,
    )


def write_versions(interpreter: Sequence[str], expected: Mapping[str, str | None]) -> str:
    """Return a line of bash that records versions of packages, for `versions_in`.

    Args:
        interpreter: words that start the Python that has the packages.
        expected: package -> the version that the adapter was written for, which is compared; None
            to record the package only if it is installed.
    """
    return shlex.join([*interpreter, "-c", _WRITE_VERSIONS, json.dumps(dict(expected))])


def versions_in(folder: Path) -> Mapping[str, str]:
    """Return the package versions recorded by the job; empty if the file is damaged."""
    try:
        versions = json.loads((folder / VERSIONS).read_text(encoding="utf-8"))
        return {str(name): str(version) for name, version in versions.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def highest_by_rank(peaks: Iterable[tuple[int, float | None]]) -> tuple[float, ...]:
    """Return the highest peak of each rank that reported one, in rank order."""
    highest: dict[int, float] = {}
    for rank, peak in peaks:
        if peak is not None:
            highest[rank] = max(peak, highest.get(rank, 0.0))
    return tuple(highest[rank] for rank in sorted(highest))
