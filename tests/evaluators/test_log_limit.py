"""Logs that are shortened while programs write them and others read them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from evaluators.log_limit import CannotShorten, LogLimit
from evaluators.training_log.lines import whole_log, written_blocks
from evaluators.training_log.reader import read_log
from tests.requirement import require

KEPT_BYTES = 200_000
# As many lines of noise after each iteration as fill a MB; errors in between, and progress bars.
PRINTS = r"""
import sys
for number in range(1, 31):
    print(f" iteration {number:8d}/      30 | consumed samples: {number * 8} | "
          f"elapsed time per iteration (ms): {100 + number}.0 | learning rate: 1.0E-4 | "
          "global batch size: 8 | lm loss: 7.0E+00 | number of skipped iterations: 0 | "
          "number of nan iterations: 0 |")
    if number == 15:
        print("Traceback (most recent call last):\n  File \"x.py\", line 1\nValueError: in between")
    for part in range(100):
        print("noise " * 1650 + "\rbar")
    sys.stdout.flush()
    sys.stdin.readline()
"""


def written(log: Path) -> str:
    with whole_log(log) as file:
        return b"".join(written_blocks(file)).decode()


def test_a_log_of_30_mb_takes_little_room_and_tells_all_iterations(tmp_path: Path) -> None:
    log = tmp_path / "trial.log"
    limit = LogLimit(kept_bytes=KEPT_BYTES)
    with log.open("ab") as output:
        program = subprocess.Popen(
            [sys.executable, "-c", PRINTS], stdout=output, stdin=subprocess.PIPE, text=True
        )
        assert program.stdin
        for number in range(30):
            program.stdin.write("\n")
            program.stdin.flush()
            try:
                limit.shorten(log)
            except CannotShorten:
                program.kill()
                program.wait()
                require(False, "a file system that gives back parts of files")
            if number == 20:  # another runner goes on
                limit = LogLimit(kept_bytes=KEPT_BYTES)
        program.communicate()
    limit.shorten(log)
    assert log.stat().st_size > 29_000_000
    assert log.stat().st_blocks * 512 < 3_000_000

    (run,) = read_log(log).runs
    assert [each.number for each in run.iterations] == list(range(1, 31))
    assert [each.elapsed_s for each in run.iterations] == [(100 + n) / 1000 for n in range(1, 31)]
    text = written(log)
    assert "ValueError: in between" in text
    assert "[autotune left out " in text
    assert text.endswith("bar\n")
    assert "\0" not in text


def test_nothing_is_taken_out_of_a_log_that_somebody_reads(tmp_path: Path) -> None:
    log = tmp_path / "trial.log"
    log.write_bytes(b"noise\n" * 500_000)
    with whole_log(log):
        LogLimit(kept_bytes=KEPT_BYTES).shorten(log)
        assert written(log) == "noise\n" * 500_000


@pytest.mark.parametrize("line", ["x" * 70, "\rbar", "Error: once more\n"])
def test_floods_without_figures_take_little_room(tmp_path: Path, line: str) -> None:
    log = tmp_path / "trial.log"
    log.write_text(line * (4_000_000 // len(line)))
    limit = LogLimit(kept_bytes=KEPT_BYTES, is_informative=lambda _: False)
    try:
        limit.shorten(log)
    except CannotShorten:
        require(False, "a file system that gives back parts of files")
    assert log.stat().st_blocks * 512 < 2_000_000
    assert written(log).startswith(line)
    assert written(log).endswith(line)
