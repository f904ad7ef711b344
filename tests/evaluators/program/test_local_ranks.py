"""Ranks on this machine begin, fail and end together."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from evaluators.program import local_ranks
from tests.patience import PATIENCE_S


def _started(ranks: int, *command: str) -> subprocess.Popen[str]:
    words = [sys.executable, str(local_ranks.__file__), str(ranks), *command]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _bash(ranks: int, script: str) -> tuple[int, list[str], str]:
    with _started(ranks, "bash", "-c", script) as process:
        out, error = process.communicate(timeout=PATIENCE_S)
    return process.returncode, sorted(out.splitlines()), error


def test_each_rank_knows_its_place() -> None:
    place = 'echo "$SLURM_PROCID $SLURM_LOCALID of $SLURM_NTASKS on node $SLURM_NODEID"'
    code, out, _ = _bash(3, place)
    assert (code, out) == (0, [f"{rank} {rank} of 3 on node 0" for rank in range(3)])


@pytest.mark.parametrize(
    ("fails", "code", "error"),
    [("exit 7", 7, ""), ("kill -KILL $$", 128 + 9, "Killed (rank 1)\n")],
)
def test_the_first_rank_that_fails_ends_the_others(fails: str, code: int, error: str) -> None:
    others = "trap 'echo ended; kill $!; exit 0' TERM; sleep 1000 & wait"
    script = f"if [[ $SLURM_PROCID == 1 ]]; then {fails}; fi; {others}"
    assert _bash(3, script) == (code, ["ended", "ended"], error)


def test_a_command_that_does_not_exist_is_named() -> None:
    with _started(2, "no-such-command") as process:
        _, error = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, error) == (127, "no-such-command: No such file or directory\n")


def test_ranks_end_whenever_they_are_signalled() -> None:
    """At moments that are spread over the start of Python, of the ranks, and their sleep."""
    processes = []
    for number in range(24):
        processes.append(_started(2, "sleep", "1000"))
        time.sleep(number / 200)
        processes[-1].send_signal(signal.SIGTERM)
    for process in processes:
        process.communicate(timeout=PATIENCE_S)
    assert {process.returncode for process in processes} <= {-signal.SIGTERM, 128 + signal.SIGTERM}
