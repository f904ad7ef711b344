"""However long a log is, and whatever it is full of, it is read in a few megabytes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from itertools import repeat
from pathlib import Path

import pytest

from evaluators.training_log import LogReader, TrainingLog, read_log
from evaluators.training_log.lines import LONGEST_LINE
from evaluators.training_log.power import PowerLines

MIB = 1 << 20
MOST_BYTES = 400 << 10  # less than the noise that goes through
MOST_SAMPLES = 20_000
ITERATION = b"GAS 4, iteration 1 | 101.9 ms | loss 7.1000000\n"


def read(blocks: Iterable[bytes]) -> tuple[TrainingLog, int]:
    """What the log tells, and the most bytes that reading it took."""
    reader = LogReader()
    tracemalloc.start()
    try:
        for block in blocks:
            reader.feed(block)
        log = reader.finish()
        return log, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "noise",
    [
        b"step 3: all 24 layers are on their devices\n",
        b"0 errors and no Exception in this iteration of the memory test\n",
        b"RuntimeError: Connection reset by peer\n",
        b"srun: error: n01: task 3: Exited with exit code 1\n",
        b"[rank3]: Traceback (most recent call last):\n",
        b"no newline at all",
        b"\x00",
        b"\r 50%|#####     | 5/10",
        b", iteration 3 |",
    ],
)
def test_noise_takes_no_memory(noise: bytes) -> None:
    block = noise * (MOST_BYTES // 8 // len(noise))
    log, most = read([ITERATION, *repeat(block, 10), b"\n", ITERATION.replace(b"n 1", b"n 9")])
    assert most < MOST_BYTES
    assert [i.number for i in log.iterations] == [1, 9]


def test_a_line_is_read_up_to_the_limit_and_not_beyond() -> None:
    longest = b"-" * (LONGEST_LINE - len(ITERATION) + 1) + ITERATION
    for size in (MIB, 1000):
        for line, count in ((longest, 1), (b"-" + longest, 0)):
            log, _ = read(line[n : n + size] for n in range(0, len(line), size))
            assert len(log.iterations) == count


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_log(tmp_path / "trial.log")


def test_power_samples_are_thinned_but_keep_each_first_and_last() -> None:
    lines = PowerLines(most_samples=MOST_SAMPLES)
    most, iterations = MOST_SAMPLES + 1000, 50
    for n in range(most):
        after = n * iterations // most
        assert lines.read(f"[autotune power] n{n % 2} 1.0 {n}.5", after=after)
    samples = lines.power().samples
    assert MOST_SAMPLES / 4 < sum(len(s) for s in samples.values()) <= MOST_SAMPLES
    for node, thinned in enumerate((samples["n0"], samples["n1"])):
        for after in (0, iterations // 2, iterations - 1):
            of_all = [n for n in range(node, most, 2) if n * iterations // most == after]
            watts = [sample.watts - 0.5 for sample in thinned if sample.after == after]
            assert (watts[0], watts[-1]) == (of_all[0], of_all[-1])
        assert all(sample.after == (sample.watts - 0.5) * iterations // most for sample in thinned)


def test_where_thinning_helps_no_more_samples_are_left_out() -> None:
    lines = PowerLines(most_samples=MOST_SAMPLES)
    for n in range(MOST_SAMPLES + 1000):
        lines.read(f"[autotune power] n01 {n}.0 100.0", after=n)
    thinned = lines.power().samples["n01"]
    assert [sample.after for sample in thinned] == list(range(MOST_SAMPLES))
