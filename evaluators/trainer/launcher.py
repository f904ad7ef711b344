"""Ranks that a launcher started: torchrun, or srun with torch's variables set."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from evaluators import processes
from evaluators.trainer.failure import FAILED, LEFT_ALONE, ended_by
from evaluators.trainer.libraries import device_of_trials, load
from evaluators.trainer.supervisor import outcome_of
from evaluators.trial import TrialRequest, write_result

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

GRACE_S = 3.0
"""How long a rank that only lost another one waits before it ends, so that the rank with the cause
can report it: the launcher ends all ranks with the first."""


def launched(environment: Mapping[str, str]) -> tuple[int, int] | None:
    if not all(name in environment for name in VARIABLES):
        return None
    return int(environment["RANK"]), int(environment["WORLD_SIZE"])


def ranks_of_node(environment: Mapping[str, str]) -> tuple[int, ...] | None:
    """Return the ranks of this task's node if its first task may fork them all, else None.

    This requires that srun started one task per rank, so that the rank is Slurm's task number, and
    did not bind tasks to cores, which forked ranks would share.
    """
    by_slurm = environment.get("SLURM_PROCID") == environment["RANK"]
    bound = environment.get("SLURM_CPU_BIND_TYPE", "none") != "none"
    if not by_slurm or bound or "SLURM_GTIDS" not in environment:
        return None
    return tuple(int(number) for number in environment["SLURM_GTIDS"].split(","))


def be_launched(request: TrialRequest, environment: Mapping[str, str]) -> int:
    """Train as the rank that `environment` names. Rank 0 writes the result after success.

    After a failure, the log and the exit code report it, and the launcher ends the other ranks. On
    CPUs under Slurm the first task of a node forks all of its ranks, since importing torch and
    DeepSpeed takes seconds of a core; the node's other tasks do nothing.
    """
    rank, _ = launched(environment) or (0, 1)
    ranks = ranks_of_node(environment) if device_of_trials() == "cpu" else None
    if ranks is None:
        load()
        local_rank = environment.get("LOCAL_RANK", environment.get("SLURM_LOCALID", "0"))
        return _be_rank(request, environment, rank, local_rank=int(local_rank))
    return _be_node(request, environment, ranks) if rank == ranks[0] else 0


def _be_node(request: TrialRequest, environment: Mapping[str, str], ranks: Sequence[int]) -> int:
    load()
    running: dict[int, int] = {}
    for local_rank, rank in enumerate(ranks):

        def work(rank: int = rank, local_rank: int = local_rank) -> int:
            return _be_rank(request, environment, rank, local_rank=local_rank)

        running[processes.fork(work)] = rank
    while running:
        pid, status = os.wait()
        ended = running.pop(pid, None)
        code = os.waitstatus_to_exitcode(status)
        if ended is not None and code:
            if code < 0:  # a rank that failed has reported it
                cause = ended_by(ended, code, last_words="", at=time.monotonic())
                print(f"[rank {ended}] {cause.error}", file=sys.stderr, flush=True)
            for other in running:
                os.kill(other, signal.SIGKILL)
            return FAILED
    return 0


def _be_rank(
    request: TrialRequest, environment: Mapping[str, str], rank: int, *, local_rank: int
) -> int:
    from evaluators.trainer.rank import RankSettings, leave, run_rank

    settings = RankSettings(
        rank=rank,
        world_size=int(environment["WORLD_SIZE"]),
        local_rank=local_rank,
        device=device_of_trials(),
    )
    started_at, started = datetime.now(UTC), time.monotonic()
    code, report = run_rank(request, settings)
    if code == LEFT_ALONE:
        time.sleep(GRACE_S)
    if report:
        duration_s = time.monotonic() - started
        outcome = outcome_of(request, report, started_at=started_at, duration_s=duration_s)
        try:
            write_result(request.directory, outcome)
        except OSError as error:
            complaint = f"[rank 0] the result could not be written: {error}"
            print(complaint, file=sys.stderr, flush=True)
            code = FAILED
    leave(code)
    return code
