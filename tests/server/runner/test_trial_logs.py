"""What remains of the logs of ended trials."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from server.runner.trial_logs import shorten_log, shorten_logs
from tests.full_disk import full_disk

END_BYTES = 200_000
LINES = [f"step {number:06d} " + "x" * 80 + "\n" for number in range(20_000)]


def test_the_beginning_and_the_end_of_a_long_log_remain(tmp_path: Path) -> None:
    log = tmp_path / "trial.log"
    log.write_text("".join(LINES))
    shorten_log(log, end_bytes=END_BYTES)
    lines = log.read_text().splitlines(keepends=True)
    note = lines.index("[autotune left out 1.5 MB here]\n")
    assert lines[:note] == LINES[:note]
    assert lines[note + 1 :] == LINES[note + 1 - len(lines) :]
    assert 2 * END_BYTES - 300 < log.stat().st_size <= 2 * END_BYTES + 100
    before = log.read_bytes()
    shorten_log(log, end_bytes=END_BYTES)
    assert log.read_bytes() == before


@pytest.mark.parametrize("text", ["", "one line\n", "x" * 2 * END_BYTES])
def test_a_log_that_is_not_too_long_stays_whole(tmp_path: Path, text: str) -> None:
    log = tmp_path / "trial.log"
    log.write_text(text)
    shorten_log(log, end_bytes=END_BYTES)
    assert log.read_text() == text


def test_progress_bars_without_lines_are_cut_anywhere(tmp_path: Path) -> None:
    log = tmp_path / "trial.log"
    log.write_text("begin\n" + "\r 50 % ####" * 100_000 + "\nend\n")
    shorten_log(log, end_bytes=END_BYTES)
    text = log.read_bytes().decode()
    assert 2 * END_BYTES < len(text) < 2 * END_BYTES + 100
    assert text.startswith("begin\n\r 50 %")
    assert text.endswith("####\nend\n")


def test_a_log_is_shortened_on_a_full_disk(tmp_path: Path) -> None:
    with full_disk(tmp_path / "full") as disk:
        disk.make_room()
        folder = disk.folder / "attempt-1"
        folder.mkdir()
        text = "".join(LINES).encode()
        with suppress(OSError), (folder / "trial.log").open("wb", buffering=0) as file:
            while file.write(text):
                pass
        shorten_logs(disk.folder, end_bytes=10_000)
        assert (folder / "trial.log").stat().st_size < 21_000
