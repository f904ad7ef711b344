"""Runs a command as every rank on this machine, as srun does on a cluster's nodes.

`python local_ranks.py RANKS COMMAND…` gives each rank its place in Slurm's variables. It ends all
ranks once one fails, or on a signal, and exits with the code of the first that failed.
It runs with whatever Python a machine has, 3.8 or later, so it imports only the standard library.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time

FAULTS_S = 1.0
"""Time for the others to print their own errors: the rank that fails first may only follow from
the fault of another."""
KILL_AFTER_S = 10.0
"""Time between SIGTERM and SIGKILL."""
LONGEST_WAIT_S = 3600.0

_ENDS = {signal.SIGTERM, signal.SIGINT}
_AWAITED = {*_ENDS, signal.SIGCHLD}


def main(ranks: str, *command: str) -> int:
    """Return the exit code of the first rank that fails, 0 if none does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    running: dict[int, int] = {}
    code = _start(int(ranks), command, running)
    due_s, next_signal = 0.0 if code else float("inf"), signal.SIGTERM
    while running:
        left_s = max(due_s - time.monotonic(), 0.0)
        received = signal.sigtimedwait(_AWAITED, min(left_s, LONGEST_WAIT_S))
        for rank, status in _ended(running):
            if os.WIFSIGNALED(status) and next_signal is signal.SIGTERM:
                name = signal.strsignal(os.WTERMSIG(status))
                print(f"{name} (rank {rank})", file=sys.stderr, flush=True)
            if status and not code:
                code = _exit_code(status)
                due_s = min(due_s, time.monotonic() + FAULTS_S)
        signalled = received is not None and received.si_signo in _ENDS
        if (signalled and next_signal is signal.SIGTERM) or time.monotonic() >= due_s:
            for pid in running:
                os.kill(pid, next_signal)
            due_s, next_signal = time.monotonic() + KILL_AFTER_S, signal.SIGKILL
    return code


def _start(ranks: int, command: tuple[str, ...], running: dict[int, int]) -> int:
    shared = {"SLURM_NTASKS": str(ranks), "SLURM_TASKS_PER_NODE": str(ranks), "SLURM_NODEID": "0"}
    ignored_by_python = [signal.SIGPIPE, signal.SIGXFSZ]
    for rank in range(ranks):
        own = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}
        variables = {**os.environ, **shared, **own}
        try:
            pid = os.posix_spawnp(
                command[0], command, variables, setsigmask=[], setsigdef=ignored_by_python
            )
        except OSError as error:
            print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
            return 127 if error.errno == errno.ENOENT else 126
        running[pid] = rank
    return 0


def _ended(running: dict[int, int]) -> list[tuple[int, int]]:
    ended = []
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            break
        if pid in running:  # not a child of the script that became this process
            ended.append((running.pop(pid), status))
    return ended


def _exit_code(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
