"""The end of a trial's log: of its newest attempt, while it waits or runs in a queue."""

from __future__ import annotations

from pathlib import Path

from autotune.schemas import Trial
from server.settings import Settings
from server.store import NotFound

LOG_NAME = "trial.log"
ATTEMPTS = f"attempt-[1-9]*/{LOG_NAME}"
LONGEST_TAIL = 4 * 2**20


def tail(trial: Trial, settings: Settings, *, lines: int) -> str:
    """The last `lines` lines, of the last 4 MiB at most; raises NotFound while there is no log."""
    path = log_file(trial, settings)
    if path is None:
        reason = f"trial {trial.number} of campaign {trial.campaign_id} has no log"
        raise NotFound("log", trial.number, reason=reason)
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - LONGEST_TAIL))
        text = file.read().decode(errors="replace")
    return "".join(text.splitlines(keepends=True)[-lines:])


def log_file(trial: Trial, settings: Settings) -> Path | None:
    """The log, where it is a file inside of the trial's own directory and nowhere else."""
    directory = settings.trial_dir(trial.token).resolve()
    path = Path(trial.log_path) if trial.log_path else _newest(directory)
    resolved = (directory / path).resolve()
    return resolved if resolved.is_relative_to(directory) and resolved.is_file() else None


def _newest(directory: Path) -> Path:
    """Where a trial that has not ended writes."""
    logs = {int(log.parent.name.rpartition("-")[2]): log for log in directory.glob(ATTEMPTS)}
    return logs[max(logs)] if logs else directory / LOG_NAME
