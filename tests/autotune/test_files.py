"""The atomic write."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autotune.files import write_whole


@pytest.mark.parametrize("content", ["ein Satz für sich\n", "ein Satz für sich\n".encode()])
def test_text_and_bytes_are_written_and_replace_what_was_there(
    tmp_path: Path, content: str | bytes
) -> None:
    path = tmp_path / "note"
    path.write_text("before")
    assert write_whole(path, content, durable=True) == path
    assert path.read_text(encoding="utf-8") == "ein Satz für sich\n"
    assert [file.name for file in tmp_path.iterdir()] == ["note"]
    assert not path.stat().st_mode & 0o111
    assert write_whole(path, content, executable=True).stat().st_mode & 0o100


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write_whole(tmp_path / "taken", b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_several_writers_of_one_file_leave_the_whole_text_of_one(tmp_path: Path) -> None:
    path = tmp_path / "note"
    texts = [str(number) * 100_000 for number in range(8)]
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda text: write_whole(path, text), texts))
    assert path.read_text() in texts
    assert [file.name for file in tmp_path.iterdir()] == ["note"]
