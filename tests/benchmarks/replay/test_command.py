"""The whole command, on tables of a machine that we made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.accuracy.measurements import measured, written
from tests.benchmarks.accuracy.tables import THROUGHPUT
from tests.benchmarks.replay.methods import METHODS
from tests.benchmarks.search_replay import main

FIGURES = {"median", "p90", "worst", "failures", "solved"}


@pytest.mark.long
def test_the_document_the_tables_and_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = [name for name in THROUGHPUT if name != "zero_shard_gpus"]
    tables = [
        str(written(tmp_path / f"{name}.csv", measured(name, count=count)[0], columns))
        for name, count in (("gpt-1.4b", 13), ("llama-2-7b", 4))
    ]
    out, picture = tmp_path / "out.json", tmp_path / "regret.svg"
    given = ["--throughput", *tables, "--seeds", "1", "--processes", "1"]
    assert main([*given, "--json", str(out), "--picture", str(picture)]) == 0
    whole = json.loads(out.read_text(), parse_constant=pytest.fail)
    assert set(whole) == {"overall", "landscapes", "projection", "own_stop"}
    assert list(whole["overall"]) == list(METHODS)
    assert len(whole["landscapes"]) == 1
    for by_method in (whole["overall"], *whole["landscapes"].values()):
        assert all(set(of_method) == FIGURES for of_method in by_method.values())
    ours = whole["overall"]["ours"]
    assert 1 <= ours["median"] <= ours["p90"] <= ours["worst"] <= 13
    assert ours["solved"] == 1.0
    assert whole["projection"]["2-4"].keys() == {"median", "p90", "coverage", "pairs"}
    own_stop = whole["own_stop"]
    assert 1 <= own_stop["trials_median"] <= 13
    assert 0 <= own_stop["failed_share"] < 1
    assert own_stop["within_1_percent"] in (0.0, 1.0)
    printed = capsys.readouterr().out
    assert "Optuna" in picture.read_text()
    assert all(name in printed for name in METHODS)


def test_a_table_that_cannot_be_read_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--throughput", str(tmp_path / "none.csv")]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"search_replay: {tmp_path / 'none.csv'}: No such file or directory"
    ]
