"""What a node reads in the log of a run that it may end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evaluators.program import run_watch
from evaluators.program.run_watch import RunWatch
from evaluators.program.watched_run import watched_function
from evaluators.stopping_rule import Verdict
from tests.patience import PATIENCE_S

GO_ON, ENOUGH, GIVE_UP, OUT_OF_TIME = Verdict


def segment(
    gas: int, first: int, last: int, limit_s: float | None = None, *, owed: float = 0.0
) -> dict[str, Any]:
    return {
        "gradient_accumulation_steps": gas,
        "first_measured": first,
        "last": last,
        "give_up_above_s": limit_s,
        "iterations_owed": owed,
    }


def plan(*segments: dict[str, Any]) -> dict[str, Any]:
    rule = {"least": 2, "most": 6, "target_spread": 0.01, "long_s": None}
    times = {"time_for_more_s": 100.0, "time_limit_s": 200.0}
    return rule | times | {"segments": list(segments), "memory_ranks": 0}


TWO = plan(segment(4, 2, 3), segment(8, 5, 10))


def line(number: int, seconds: float, *, skipped: int = 0, loss: str = "2.5E+00") -> str:
    return (
        f" iteration {number:8d}/      10 | consumed samples:           64 | elapsed time per "
        f"iteration (ms): {1000 * seconds:.1f} | learning rate: 1.000E-04 | global batch size:    "
        f"16 | lm loss: {loss} | loss scale: 1.0 | grad norm: 1.000 | number of skipped "
        f"iterations:   {skipped} | number of nan iterations:   0 | TFLOPs: 1.00 |"
    )


def watched(asked: dict[str, Any], *lines: str) -> list[Verdict]:
    watch = RunWatch(asked)
    return [watch.take(each, elapsed_s=1.0)[0] for each in lines]


def test_only_the_last_batch_ends_when_its_spread_is_small() -> None:
    small = [line(number, 0.5) for number in (1, 2, 3, 4)]
    large = [line(5, 1.0), line(6, 1.1), line(7, 1.05), line(8, 1.05), line(9, 1.05)]
    assert watched(TWO, *small, *large) == [GO_ON] * 8 + [ENOUGH]


def test_a_run_is_not_ended_before_its_ranks_report_memory() -> None:
    """A busy node's lines come late. A run that never tells is ended in the end."""

    def memory(rank: int) -> str:
        return f"[Rank {rank}] (after 1 iterations) memory (MB) | allocated: 1.0 | max reserved: 2"

    asked = plan(segment(4, 2, 3, 0.3), segment(8, 5, 10)) | {"memory_ranks": 2}
    late = [line(1, 0.5), memory(2), line(2, 0.5), line(3, 0.5), line(4, 0.5), memory(0)]
    assert watched(asked, *late) == [GO_ON] * 5 + [GIVE_UP]
    watch = RunWatch(asked)
    decisions = [watch.take(each, elapsed_s=1.0)[0] for each in late[:-1]]
    decisions += [watch.look(elapsed_s=after_s)[0] for after_s in (20.0, 40.0)]
    assert decisions == [GO_ON] * 6 + [GIVE_UP]
    assert watch.iteration == 3


def test_a_run_that_is_about_to_end_is_left_alone() -> None:
    assert watched(plan(segment(8, 2, 3)), *(line(n, 1.0) for n in (1, 2, 3))) == [GO_ON] * 3


def test_it_is_given_up_at_either_batch() -> None:
    slow = plan(segment(4, 2, 3, 0.3), segment(8, 5, 10, 0.6))
    assert watched(slow, *(line(n, 0.5) for n in (1, 2, 3)))[-1] is GIVE_UP
    fast = [line(n, 0.2) for n in (1, 2, 3, 4)]
    assert watched(slow, *fast, line(5, 0.9), line(6, 0.9)) == [GO_ON] * 5 + [GIVE_UP]


def test_a_run_ends_after_its_first_batch_if_the_second_is_slow() -> None:
    slow = plan(segment(4, 2, 3, owed=4.0), segment(8, 4, 10))
    assert watched(slow, *(line(n, 40.0) for n in (1, 2, 3))) == [GO_ON] * 3
    assert watched(slow, *(line(n, 50.0) for n in (1, 2, 3))) == [GO_ON, GO_ON, OUT_OF_TIME]


def test_two_long_iterations_that_agree_are_enough() -> None:
    asked = plan(segment(8, 2, 10)) | {"least": 3, "long_s": 20.0}
    assert watched(asked, line(2, 30.0), line(3, 30.0))[-1] is ENOUGH
    assert watched(asked, line(2, 10.0), line(3, 10.0))[-1] is GO_ON


@pytest.mark.parametrize(
    "spoilt",
    [
        (line(5, 1.0, skipped=1),),
        (line(5, 1.0, loss="nan"),),
        ("[deepspeed] OVERFLOW! Rank 3 Skipping step.", line(5, 1.0)),
        (line(5, 1.0)[:80],),
    ],
)
def test_iterations_that_are_not_timed_do_not_count(spoilt: tuple[str, ...]) -> None:
    assert watched(TWO, *spoilt, line(6, 1.0))[-1] is GO_ON
    assert watched(TWO, *spoilt, line(6, 1.0), line(7, 1.0))[-1] is ENOUGH


def test_another_megatrons_line_is_read_too() -> None:
    other = "iteration=       {}/      10 | elapsed_time_per_iteration_ms=101.9 | x=1 |"
    watch = RunWatch(TWO)
    assert watch.take(other.format(5), elapsed_s=1.0) == (GO_ON, "")
    decision, why = watch.take(other.format(6), elapsed_s=1.0)
    assert (decision, watch.iteration) == (ENOUGH, 6)
    assert why == "measured enough: 2 iterations, 0.1019 s each"


@pytest.mark.parametrize("start", [0.0, 0.5], ids=["at once", "later"])
def test_a_watch_ends_with_its_run(start: float, tmp_path: Path) -> None:
    script = watched_function([sys.executable], str(run_watch.__file__))
    (tmp_path / "trial.log").touch()
    (tmp_path / "watch-1.json").write_text(json.dumps(TWO | {"log": "trial.log"}))
    words = ["bash", "-c", f"{script}\nwatched 1 bash -c 'sleep {start}; exit 7'"]
    ran = subprocess.run(words, cwd=tmp_path, timeout=PATIENCE_S, check=False, capture_output=True)
    assert (ran.returncode, ran.stderr) == (7, b"")
