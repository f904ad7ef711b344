"""What holds for any log, however it was cut, mixed or damaged."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from evaluators.training_log import LogReader, TrainingLog, read_log
from tests.evaluators.training_log.test_corpus import LOGS

# Whole lines that other ranks, libraries and users' own code write: none has a meaning here,
# and many look as if they had.
NOISE = (
    "building model: iteration over 24 layers",
    "iteration 12 of data epoch 3",
    "iterations per epoch: 2/5",
    "mean iteration time | forward: 12.5 | backward: 25.0 |",
    "[2024-05-01 12:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=2, skipped=0",
    "[2024-05-01 12:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | "
    "fwd_microstep: 25341.72 | bwd_microstep: 77707.38 | step_microstep: 2218.38",
    "time (ms) | forward-backward: 101.22 | optimizer: 3.10",
    "0 errors, 3 warnings",
    "[WARNING] async_io: please install the libaio-dev package; error handling is off",
    "UserWarning: this overload of addcmul_ is deprecated (memory format ignored)",
    "No Grad overflow for 1000 iterations",
    "memory (MB) | allocated: 12.5 | max reserved: 3",
    "Exceptions are logged to stderr",
    "saving checkpoint at iteration       2 to /scratch/x",
    "using world size 8",
    "[autotune power]",
    "3: [rank3]: warming up",
    "[default7]:throughput is 12.5",
    " 50%|#####     | 5/10 [00:01<00:01,  4.11it/s]",
    "",
)
# Pieces out of which a fuzzer makes lines that nearly are what they are not.
TOKENS = (
    b"9" * 400,
    b"1e999 |",
    b"[autotune power] n01 ",
    b"1714550000.1 ",
    b"none",
    b"GAS 4, iteration 1 | 12.0 ms |",
    b"Traceback (most recent call last):\n",
    b'  File "x.py", line 1\n',
    b"AssertionError",
    b"RuntimeError: ",
    b"During handling of the above exception, another exception occurred:\n",
    b"Exception ignored in: x\n",
    b"srun: error: n01: task 3: ",
    b"slurmstepd: error: *** STEP 1.0 ON n01 CANCELLED AT ",
    b"[rank3]: ",
    b" 3: ",
    b"\x1b[31m",
    b"\x1b]0;",
    b"what():  ",
    b"|",
    b"\n",
    b"\r",
    b"\x00",
    b"\xff\xc3",
    b"0",
)

logs = st.sampled_from(LOGS)


@cache
def content(log: Path) -> bytes:
    return log.read_bytes()


@cache
def whole(log: Path) -> TrainingLog:
    return read_log(log)


def read(*blocks: bytes) -> TrainingLog:
    reader = LogReader()
    for block in blocks:
        reader.feed(block)
    return reader.finish()


@given(log=logs, data=st.data())
def test_lines_of_noise_change_nothing(log: Path, data: st.DataObject) -> None:
    lines = content(log).splitlines(keepends=True)
    noise = st.tuples(st.integers(0, max(len(lines) - 1, 0)), st.sampled_from(NOISE))
    for at, text in data.draw(st.lists(noise, max_size=20)):
        lines.insert(at, text.encode() + b"\n")
    assert read(b"".join(lines)) == whole(log)


@given(log=logs, data=st.data())
def test_a_truncated_log_gives_no_iteration_the_whole_one_lacks(
    log: Path, data: st.DataObject
) -> None:
    text = content(log)
    some = read(text[: data.draw(st.integers(0, len(text)))])
    every = whole(log).iterations
    lines = {i.line for i in every}
    assert all(i in every for i in some.iterations if i.line in lines)


@given(st.lists(st.one_of(st.sampled_from(TOKENS), st.binary(max_size=20)), max_size=60))
def test_no_bytes_make_it_fail(pieces: list[bytes]) -> None:
    text = b"".join(pieces)
    assert read(text) == read(*(text[n : n + 3] for n in range(0, len(text), 3)))
