"""What holds for any log, however it was cut, mixed or damaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from evaluators.training_log import Iteration, LoggedRun, LogReader, TrainingLog, read_log
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
# The log of the corpus whose lines are broken by others. What ends there as a field does may be the
# end of a broken line, which then lends no more figures.
BROKEN_LINES = "interleaved"
# Pieces out of which a fuzzer makes lines that nearly are what they are not.
TOKENS = (
    b" iteration        2/       5 |",
    b" elapsed time per iteration (ms): 101.9 |",
    b" elapsed time per iteration (s): ",
    b" number of nan iterations:   0 |",
    b" lm loss: 1.0E+",
    b"9" * 400,
    b"1e999 |",
    b"[Rank 3] (after 1 iterations) memory (MB)",
    b" | max allocated: 1.5 | reserved: 2.0 | max reserved: ",
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
    b"OVERFLOW! Rank ",
    b" validation loss at iteration 3 |",
    b"using world size: 8",
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
    texts = [text for text in NOISE if log.stem != BROKEN_LINES or not text.endswith("|")]
    noise = st.tuples(st.integers(0, max(len(lines) - 1, 0)), st.sampled_from(texts))
    for at, text in data.draw(st.lists(noise, max_size=20)):
        lines.insert(at, text.encode() + b"\n")
    assert read(b"".join(lines)) == whole(log)


@given(noise=st.lists(st.tuples(st.integers(0, 8), st.sampled_from(NOISE)), max_size=20))
def test_noise_between_broken_lines_gives_no_other_figure(noise: list[tuple[int, str]]) -> None:
    log = next(log for log in LOGS if log.stem == BROKEN_LINES)
    lines = content(log).splitlines(keepends=True)
    for at, text in noise:
        lines.insert(at, text.encode() + b"\n")
    noisy = read(b"".join(lines))
    assert len(noisy.runs) == 1
    assert_right(noisy.last.iterations, whole(log).last.iterations)


@given(log=logs, data=st.data())
def test_a_truncated_log_gives_no_iteration_the_whole_one_lacks(
    log: Path, data: st.DataObject
) -> None:
    text = content(log)
    some = read(text[: data.draw(st.integers(0, len(text)))])
    every = whole(log)
    assert len(some.runs) <= len(every.runs)
    for run, full in zip(some.runs, every.runs, strict=False):
        assert run.iterations == full.iterations[: len(run.iterations)]
        assert all(full.memory[rank] == peak for rank, peak in run.memory.items())


def line_of(i: Iteration) -> str:
    return (
        f" iteration {i.number:8d}/{i.of:8d} | consumed samples: {i.consumed_samples:12d} |"
        f" consumed tokens: {2048 * (i.consumed_samples or 0):12d} |"
        f" elapsed time per iteration (ms): {1000 * i.elapsed_s:.1f} | learning rate: 1.500E-04 |"
        f" global batch size: {i.global_batch_size:5d} | lm loss: {i.loss:.6E} |"
        f" loss scale: {i.loss_scale:.1f} | grad norm: {i.grad_norm:.3f} |"
        f" number of skipped iterations: {i.skipped:3d} | number of nan iterations:   0 |"
        " samples per second: 6.514 | TFLOPs: 149.46 |"
    )


@st.composite
def iterations(draw: st.DrawFn) -> list[Iteration]:
    count = draw(st.integers(1, 4))
    return [
        Iteration(
            line=number,
            number=number,
            of=count,
            elapsed_s=draw(st.integers(1, 10**7)) / 10_000,
            global_batch_size=draw(st.integers(1, 10**5)),
            consumed_samples=draw(st.integers(1, 10**9)),
            loss=float(f"{draw(st.floats(1e-3, 1e3)):.6E}"),
            loss_scale=float(2 ** draw(st.integers(0, 32))),
            grad_norm=draw(st.integers(0, 10**6)) / 1000,
            skipped=draw(st.integers(0, 2)),
        )
        for number in range(1, count + 1)
    ]


# Characters of a line's beginning, and of its last field that matters and what follows.
BEGINNING, ENDING = 33, 80


@st.composite
def broken(draw: st.DrawFn, line: str) -> str:
    """A line with the output of other ranks within it: anywhere, or where most depends on it."""
    for _ in range(draw(st.integers(0, 3))):
        length = len(line)
        decisive = st.integers(0, min(length, BEGINNING)) | st.integers(
            max(length - ENDING, 0), length
        )
        at = draw(st.integers(0, length) | decisive)
        other = draw(st.sampled_from(NOISE)) + draw(st.sampled_from(["", "\n", "\n", "\r\n"]))
        line = line[:at] + other + line[at:]
    return line


def assert_right(iterations_read: Sequence[Iteration], true: Sequence[Iteration]) -> None:
    """Each figure is the true one, or none at all."""
    by_number = {i.number: asdict(i) for i in true}
    for iteration in iterations_read:
        expected = by_number[iteration.number]
        figures = asdict(iteration)
        # A line whose very number was broken is not known to be one.
        assert figures.pop("line") <= expected["line"]
        for name, value in figures.items():
            assert value is None or value == expected[name], name


@given(true=iterations(), data=st.data())
def test_a_line_that_others_break_gives_the_right_number_or_none(
    true: list[Iteration], data: st.DataObject
) -> None:
    lines = [data.draw(broken(line_of(i))) for i in true]
    log = read("".join(f"{line}\n" for line in lines).encode())
    assert len(log.runs) <= 1
    assert_right(log.last.iterations, true)
    lost = {i.number for i in true} - {i.number for i in log.last.iterations}
    assert set(log.last.damaged) <= lost


@given(true=iterations(), data=st.data())
def test_what_stands_between_lines_loses_none(true: list[Iteration], data: st.DataObject) -> None:
    noise = st.lists(st.sampled_from(NOISE), max_size=3)
    lines = [line for i in true for line in [*data.draw(noise), line_of(i)]]
    run = read("".join(f"{line}\n" for line in lines).encode()).last
    assert run == LoggedRun(iterations=tuple(true))


@given(allocated=st.integers(1, 2**37), reserved=st.integers(1, 2**16), data=st.data())
def test_a_peak_that_others_break_is_right_or_not_told(
    allocated: int, reserved: int, data: st.DataObject
) -> None:
    report = (
        f"[Rank 3] (after 1 iterations) memory (MB) | allocated: 1.0"
        f" | max allocated: {allocated / 2**20} | reserved: {2.0 * reserved}"
        f" | max reserved: {2.0 * reserved}"
    )
    log = read((data.draw(broken(report)) + "\n").encode())
    for peak in log.last.memory.values():
        assert peak.allocated_gib in (None, allocated / 2**30)
        assert peak.reserved_gib in (None, reserved / 512)


@given(st.lists(st.one_of(st.sampled_from(TOKENS), st.binary(max_size=20)), max_size=60))
def test_no_bytes_make_it_fail(pieces: list[bytes]) -> None:
    text = b"".join(pieces)
    assert read(text) == read(*(text[n : n + 3] for n in range(0, len(text), 3)))
