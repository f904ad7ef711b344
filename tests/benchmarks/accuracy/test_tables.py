"""Reading tables, and what is said of those that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.accuracy.measurements import PLAIN, timed, written
from tests.benchmarks.accuracy.tables import THROUGHPUT, TableError, read


def test_an_empty_cell_is_not_known_and_spaces_do_not_count(tmp_path: Path) -> None:
    [row] = timed(tmp_path, {"micro_batch_size": "", "num_layers": " 48 ", "zero_stage": 0})
    assert row.number("micro_batch_size") is None
    assert row.number("num_layers") == 48
    assert row.known("zero_stage")
    assert not row.known("zero_stage", "micro_batch_size")
    assert row["attention_kernel"] == ""


def test_a_row_knows_its_line(tmp_path: Path) -> None:
    rows = timed(tmp_path, {}, {}, {})
    assert [row.place[-6:] for row in rows] == ["line 2", "line 3", "line 4"]


def test_other_columns_are_not_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", [{**PLAIN, "source": "x"}], [*THROUGHPUT, "source"])
    assert "source" not in read(path, THROUGHPUT)[0].words


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("many", "line 2: micro_batch_size='many' is no number"),
        ("nan", "line 2: micro_batch_size='nan' must be a number above 0"),
        ("inf", "line 2: micro_batch_size='inf' must be a number above 0"),
        ("0", "line 2: micro_batch_size='0' must be a number above 0"),
        ("-1", "line 2: micro_batch_size='-1' must be a number above 0"),
    ],
)
def test_a_cell_that_is_no_number(tmp_path: Path, cell: str, message: str) -> None:
    with pytest.raises(TableError) as error:
        timed(tmp_path, {"micro_batch_size": cell})
    assert message in str(error.value)


def test_a_switch_may_be_0_and_no_less(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="zero_stage='-1' must be a number 0 or more"):
        timed(tmp_path, {"zero_stage": -1})


def test_missing_columns_are_named(tmp_path: Path) -> None:
    columns = [name for name in THROUGHPUT if name not in ("gpu", "model")]
    path = written(tmp_path / "a.csv", [PLAIN], columns)
    with pytest.raises(TableError, match=r"a\.csv: 2 columns are missing: gpu, model"):
        read(path, THROUGHPUT)


def test_missing_columns_may_be_empty(tmp_path: Path) -> None:
    columns = [name for name in THROUGHPUT if name not in ("gpu", "zero_stage")]
    path = written(tmp_path / "a.csv", [PLAIN], columns)
    [row] = read(path, THROUGHPUT, missing_are_empty=True)
    assert row["gpu"] == ""
    assert row.number("zero_stage") is None
    assert row.number("num_layers") == 48


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"none\.csv: No such file or directory"):
        read(tmp_path / "none.csv", THROUGHPUT)


def test_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TableError, match="is no CSV file in UTF-8"):
        read(path, THROUGHPUT)


def test_a_row_that_is_too_long(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", [PLAIN], THROUGHPUT)
    path.write_text(path.read_text().rstrip() + ",1\n")
    with pytest.raises(TableError, match="line 2: has more cells than the header"):
        read(path, THROUGHPUT)
