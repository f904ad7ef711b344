"""A rank that something else started: torchrun, or srun with torch's variables set."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from evaluators.trainer.device import device_of_trials
from evaluators.trainer.libraries import load
from evaluators.trainer.request_file import LOG, write_result
from evaluators.trainer.supervisor import measurements_of
from evaluators.trial import TrialOutcome, TrialRequest, TrialStatus

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def launched(environment: Mapping[str, str]) -> tuple[int, int] | None:
    """(rank, world size) where this process was started as one rank of several; None otherwise."""
    if not all(name in environment for name in VARIABLES):
        return None
    return int(environment["RANK"]), int(environment["WORLD_SIZE"])


def be_one_rank(request: TrialRequest, environment: Mapping[str, str]) -> int:
    """Train as this rank. Rank 0 writes the result file when all goes well.

    When it does not, the log and the exit code tell: whoever started the ranks ends the others.
    """
    rank, world_size = launched(environment) or (0, 1)
    load()
    from evaluators.trainer.rank import Place, leave, run_rank

    place = Place(
        rank=rank,
        world_size=world_size,
        local_rank=int(environment.get("LOCAL_RANK", environment.get("SLURM_LOCALID", "0"))),
        device=device_of_trials(),
    )
    started_at, started = datetime.now(UTC), time.monotonic()
    code, report = run_rank(request, place)
    if report:
        outcome = _outcome(request, report, started_at, time.monotonic() - started)
        write_result(request.directory, outcome)
    leave(code)
    return code


def _outcome(
    request: TrialRequest, report: Mapping[str, Any], started_at: datetime, duration_s: float
) -> TrialOutcome:
    return TrialOutcome(
        status=TrialStatus.OK,
        started_at=started_at,
        duration_s=duration_s,
        simulated=False,
        measurements=measurements_of(dict(report)),
        peak_memory_gib=tuple(report["peak_memory_gib"]),
        loss=report["losses"][-1],
        log_path=str(request.directory / LOG),
        host=socket.gethostname(),
        versions=report["versions"],
    )
