from __future__ import annotations

from collections.abc import Sequence
from math import nan
from pathlib import Path

import pytest

from evaluators.adapter.adapter import AdapterReader
from evaluators.adapter.figures import StartFigures, StartPart, value_of
from evaluators.adapter.log import AdapterLog
from evaluators.adapter.names import strategy_names
from evaluators.adapter.readers import masked_crc32c, rows_of
from evaluators.training_log import CauseKind
from tests.evaluators.adapter.samples import MACHINE, MODEL, event, strategy

NAMES = strategy_names(MODEL, MACHINE, strategy())


def _log(*lines: str, readers: tuple[AdapterReader, ...], starts: int = 1) -> AdapterLog:
    log = AdapterLog(readers, [[StartPart(NAMES)]] * starts)
    for line in lines:
        log.take(line)
    return log


def _line(rank: int, at_s: float, text: str, *, start: int = 1) -> str:
    return f"[start {start} rank {rank} {at_s:.6f}s] {text}"


def test_one_rank_is_the_clock_and_all_tell_their_memory() -> None:
    reader = AdapterReader(log=r"step (?P<step>\d+) (?P<ms>[\d.]+) ms (?P<peak_memory_gib>\S+) GiB",
                           iteration_time_s="ms / 1000")  # fmt: skip
    lines = [
        _line(rank, step, f"step {step} {100 + 50 * rank} ms {step + rank} GiB")
        for step in (1, 2)
        for rank in (3, 1)
    ]
    figures = _log(*lines, readers=(reader,)).starts[0].figures
    assert figures.clock == 1
    assert [i.time_s for i in figures.iterations] == [0.15, 0.15]
    assert {rank: told.peak_memory_gib for rank, told in figures.ranks.items()} == {1: 3, 3: 5}


def test_where_no_time_is_printed_lines_are_timed_as_they_arrive() -> None:
    reader = AdapterReader(log=r"'step': '?(?P<step>\d+)", arrival=True)
    lines = [_line(0, at_s, f"{{'step': '{step}'}}") for step, at_s in ((1, 5.0), (2, 5.2), (4, 6))]
    figures = _log(*lines, readers=(reader,)).starts[0].figures
    assert [i.step for i in figures.iterations] == [2, 4]
    assert [i.time_s for i in figures.iterations] == pytest.approx([0.2, 0.4])


def test_a_rate_becomes_a_time_by_what_is_known_of_the_strategy() -> None:
    reader = AdapterReader(
        log=r"step: *(?P<step>\d+) .*tps: (?P<tps>[\d,]+)",
        iteration_time_s="global_batch_size * seq_length / world_size / tps",
    )
    figures = _log(_line(0, 1, "step: 3  loss: 7  tps: 1,280"), readers=(reader,)).starts[0].figures
    assert [i.time_s for i in figures.iterations] == [32 / 1280]


def test_differences_from_the_request_and_non_numeric_losses() -> None:
    reader = AdapterReader(log=r"step (?P<step>\d+) loss (?P<loss>\S+) tp (?P<tp>\d)",
                           echo={"tensor_parallel": "tp"})  # fmt: skip
    log = _log(_line(0, 1, "step 1 loss nan tp 1"), _line(0, 2, "step 2 loss 3 tp 2"),
               readers=(reader,))  # fmt: skip
    figures = log.starts[0].figures
    assert figures.differs == ("tensor_parallel", 1, 2)
    assert figures.excluded == {1}
    assert figures.losses == pytest.approx([nan, 3], nan_ok=True)


@pytest.mark.parametrize(
    "follows",
    [
        ("ConnectionError: Connection reset by peer", "ended with exit code 1"),
        ("ended by SIGTERM",),  # srun ends the other ranks
    ],
)
def test_the_rank_that_ended_first_explains_the_others(follows: Sequence[str]) -> None:
    log = _log(
        _line(1, 1, "loading the shards"),
        _line(1, 2, "shard 7 has no end"),
        _line(1, 2.1, "ended with exit code 9"),
        *(_line(0, 2.2, text) for text in follows),
        readers=(),
    )
    assert log.cause is not None
    told = "a rank ended with exit code 9; it last printed: shard 7 has no end"
    assert (log.cause.error, log.cause.kind) == (told, CauseKind.ERROR)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1,234.5", 1234.5), ("'7'", 7), ("-1e-3", -0.001), ("nan", "nan"), ("1,23", "1,23"),
     ("v1.2.3", "v1.2.3"), ("", "")],
)  # fmt: skip
def test_what_is_a_number(text: str, value: object) -> None:
    assert value_of(text) == value


def test_rows_of_json_and_csv(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"step": 1, "train": {"loss/all": 2.5}}\nbroken\n[1]\n')
    [row] = rows_of(AdapterReader(json_lines="a.jsonl"), tmp_path / "a.jsonl")
    assert row.values == {"step": 1, "train_loss_all": 2.5}
    (tmp_path / "a.csv").write_text("step,time (s)\n1,0.5\n2,0.25\n")
    rows = rows_of(AdapterReader(csv="a.csv"), tmp_path / "a.csv")
    assert [each.values for each in rows] == [
        {"step": 1, "time_s": 0.5},
        {"step": 2, "time_s": 0.25},
    ]


def test_event_files_are_read_up_to_the_first_damage(tmp_path: Path) -> None:
    whole = b"".join(event(step, "time/step", 0.5 * step, at_s=100.0 + step) for step in (1, 2, 3))
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(whole)
    rows = list(rows_of(AdapterReader(tensorboard="tb"), path))
    assert [(row.values["step"], row.values["time_step"], row.at_s) for row in rows] == [
        (1, 0.5, 101.0), (2, 1.0, 102.0), (3, 1.5, 103.0),
    ]  # fmt: skip
    # Wherever it is cut, and whichever bit of it is turned: what is read is what was written.
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        assert list(rows_of(AdapterReader(tensorboard="tb"), path)) == rows[: 3 * end // len(whole)]
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        read = list(rows_of(AdapterReader(tensorboard="tb"), path))
        assert read == rows[: len(read)]
    # RFC 3720, B.4: 32 bytes of zeros have the CRC-32C 8a9136aa.
    crc = 0x8A9136AA
    assert masked_crc32c(bytes(32)) == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_files_are_read_into_the_figures_of_their_start(tmp_path: Path) -> None:
    reader = AdapterReader(json_lines="m.jsonl", iteration_time_s="t")
    (tmp_path / "found-2-0-0").write_text('{"step": 1, "t": 0.5}\n')
    log = _log(readers=(reader,), starts=2)
    log.read_files(tmp_path)
    assert [len(start.figures.iterations) for start in log.starts] == [0, 1]
    assert isinstance(log.starts[0].figures, StartFigures)


def test_a_row_cut_off_by_the_end_of_its_start_does_not_count(tmp_path: Path) -> None:
    reader = AdapterReader(csv="m.csv", iteration_time_s="t")
    (tmp_path / "found-1-0-0").write_text("step,t\n1,12.5\n2,1")
    told = []
    for ended in ((), (1,), (2,)):
        log = _log(readers=(reader,), starts=2)
        log.read_files(tmp_path, ended=ended)
        told.append([each.time_s for each in log.starts[0].figures.iterations])
    assert told == [[12.5, 1.0], [12.5], [12.5, 1.0]]
