"""What an attempt left behind, as the outcome of its trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.schemas import TrialState
from evaluators.program.failure import Failure
from evaluators.program.power import Energy
from evaluators.program.program import AttemptEnd
from evaluators.training_log import TrainingLog, read_log
from evaluators.trial import TrialOutcome
from evaluators.trial_files import LOG, log_tail


def log_of(folder: Path) -> TrainingLog:
    """What the attempt's log tells; nothing where there is none."""
    try:
        return read_log(folder / LOG)
    except OSError:
        return TrainingLog()


def failed(failure: Failure, folder: Path, ended: AttemptEnd) -> TrialOutcome:
    return _outcome(folder, ended, status=failure.status, error=failure.error)


def succeeded(energy: Energy, folder: Path, ended: AttemptEnd, **measured: Any) -> TrialOutcome:
    """Args: `measured` are the fields of `TrialOutcome` that the program itself found."""
    return _outcome(
        folder,
        ended,
        status=TrialState.OK,
        joules_per_token=energy.joules_per_token,
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
