"""The process of a rank, as it runs on a node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from evaluators.adapter import rank_process

PRINTS = r"""
import os, sys
sys.stdout.write("\x1b[1mstep\x1b[0m=\x1b[35m1\x1b[0m\r  \x1b[K\r\x1b]0;title\x07step=2\n")
print(sorted(name for name in os.environ if name.startswith("SLURM_")))
"""


SCRIPT = f"""echo trains
{sys.executable} -ISc 'import time; print("of its own", flush=True); time.sleep(60)'
echo ends"""
"""A shell's, which ends when it is asked to, though what it runs has not."""


STARTS_LATE = """
import os, signal, subprocess, sys, time
def start(*_):
    child = subprocess.Popen([sys.executable, "-ISc", "import time; time.sleep(60)"])
    os.write(1, b"child %d\\n" % child.pid)  # print may not run inside print
signal.signal(signal.SIGTERM, start)
print("ready", flush=True)
while True:
    time.sleep(0.1)
"""
"""It starts another process when it is asked to end."""


def _planned(folder: Path, *words: str, prepare: Sequence[str] = ()) -> None:
    plan = {
        "start": 1,
        "prepare": prepare,
        "words": words,
        "variables": {},
        "files": {},
        "out": str(folder),
        "folder": "",
        "collect": [],
    }
    (folder / "start-1.json").write_text(json.dumps(plan))


def _rank(folder: Path, *words: str) -> subprocess.Popen[str]:
    _planned(folder, *words)
    return subprocess.Popen(
        [sys.executable, "-IS", rank_process.__file__, "start-1.json"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "RANK": "0"},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_what_starts_late_ends_with_its_rank(tmp_path: Path) -> None:
    with _rank(tmp_path, sys.executable, "-IS", "-c", STARTS_LATE) as rank:
        assert rank.stdout
        assert "ready" in rank.stdout.readline()
        rank.terminate()
        child = int(rank.stdout.readline().split()[-1])
        rank.wait()
    assert rank_process.running(child) is None


@pytest.mark.parametrize(
    ("job", "variables"), [({}, []), ({"SLURM_JOB_ID": "7"}, ["SLURM_JOB_ID"])]
)
def test_the_environment_and_the_output_of_a_rank(
    job: dict[str, str], variables: list[str], tmp_path: Path
) -> None:
    """Colours are no part of what it tells; where there is no job it hears nothing of Slurm."""
    _planned(tmp_path, sys.executable, "-IS", "-c", PRINTS)
    ran = subprocess.run(
        [sys.executable, "-IS", rank_process.__file__, "start-1.json"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "RANK": "0", "SLURM_PROCID": "0", **job},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.partition("s] ")[2] for line in ran.stdout.splitlines()]
    expected = sorted([*variables, "SLURM_PROCID"]) if job else []
    assert lines == ["step=1", "step=2", str(expected)]


def test_what_a_shells_script_runs_ends_with_it(tmp_path: Path) -> None:
    with _rank(tmp_path, "bash", "-c", SCRIPT) as rank:
        assert rank.stdout
        assert "trains" in rank.stdout.readline()
        assert "of its own" in rank.stdout.readline()
        started = rank_process.descendants(rank.pid)
        assert len(started) == 2
        rank.terminate()
        assert rank.stdout.read() == ""
        assert rank.wait() == 128 + signal.SIGTERM
    assert not any(process.runs for process in started)


@pytest.mark.parametrize(
    ("code", "printed"), [(0, ["prepares", "trains"]), (3, ["prepares", "ended with exit code 3"])]
)
def test_a_rank_prepares_before_it_trains(tmp_path: Path, code: int, printed: list[str]) -> None:
    _planned(tmp_path, "echo", "trains", prepare=["sh", "-c", f"echo prepares; exit {code}"])
    ran = subprocess.run(
        [sys.executable, "-IS", rank_process.__file__, "start-1.json"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "RANK": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code
    assert [line.partition("s] ")[2] for line in ran.stdout.splitlines()] == printed


def test_a_later_process_of_the_same_number_is_another() -> None:
    mine = rank_process.running(os.getpid())
    assert mine
    assert mine.runs
    assert not mine._replace(began=mine.began - 1).runs
