"""The whole command, on tables of a machine that we made up."""

from __future__ import annotations

import json
import math
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.accuracy.__main__ import main
from tests.benchmarks.accuracy.measurements import PLAIN, Cells, measured, written
from tests.benchmarks.accuracy.memory_2026 import GOLDEN
from tests.benchmarks.accuracy.tables import MEMORY, THROUGHPUT

pytestmark = pytest.mark.xdist_group("accuracy")  # tables of one kind, made once

KEYS = {
    "zero_shot_mape",
    "mape_after",
    "leave_one_model_out_mape",
    "coverage_80",
    "kendall_tau",
    "top1_regret_after_5",
}


def tables(folder: Path, *, times: list[Cells], sizes: list[Cells]) -> list[str]:
    """Arguments that name them."""
    throughput = written(folder / "throughput.csv", times, THROUGHPUT)
    memory = written(folder / "memory.csv", sizes, MEMORY)
    return ["--throughput", str(throughput), "--memory", str(memory)]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """The document, and what was printed, for two models in one stack, and one in another."""
    folder = tmp_path_factory.mktemp("tables")
    one, other = measured("gpt-1.4b", count=20), measured("llama-2-7b", count=20)
    alone: list[Cells] = [{**row, "cluster": "small-a100"} for row in one[0][:12]]
    times, sizes = [*one[0], *other[0], *alone], [*one[1], *other[1]]
    given = tables(folder, times=times, sizes=sizes)
    with redirect_stdout(StringIO()) as printed:
        assert main([*given, "--draws", "2", "--json", str(folder / "out.json")]) == 0
    return json.loads((folder / "out.json").read_text()), printed.getvalue()


def test_the_document_has_its_keys(ran: tuple[dict[str, Any], str]) -> None:
    figures = ran[0]
    assert list(figures["clusters"]) == ["made-a100", "small-a100"]
    for part in (figures["overall"], *figures["clusters"].values()):
        assert part.keys() >= KEYS
        assert list(part["mape_after"]) == ["3", "5", "10", "20"]
    sizes = {"auc", "condemned", "missed", "peak_mape_zero_shot", "peak_mape_after_5"}
    assert figures["memory"].keys() >= sizes
    assert figures["speed"].keys() >= {"strategies_per_second", "calibration_seconds"}


def test_its_figures_are_sane(ran: tuple[dict[str, Any], str]) -> None:
    figures = ran[0]
    stack, memory = figures["clusters"]["made-a100"], figures["memory"]
    assert stack["rows"] == 40
    assert 0.005 < stack["mape_after"]["5"] < 0.06
    assert 0.7 < stack["coverage_80"] <= 1.0
    assert stack["top1_regret_after_5"] < 0.05
    assert 0.95 < memory["auc"] <= 1.0
    assert memory["peak_mape_after_5"] < 0.06
    assert figures["speed"]["strategies_per_second"] > 10_000
    assert 0.0 < figures["speed"]["calibration_seconds"] < 30.0
    both = [stack["mape_after"]["5"], figures["clusters"]["small-a100"]["mape_after"]["5"]]
    assert figures["overall"]["mape_after"]["5"] == pytest.approx(sum(both) / 2)


def test_what_no_row_tells_is_null(ran: tuple[dict[str, Any], str]) -> None:
    small = ran[0]["clusters"]["small-a100"]
    assert small["mape_after"]["10"] is small["mape_after"]["20"] is None
    assert small["leave_one_model_out_mape"] is None
    assert small["noise_floor"] is None


def test_the_tables_show_what_is_aimed_at_and_what_others_reach(
    ran: tuple[dict[str, Any], str],
) -> None:
    printed = ran[1]
    for part in ("made-a100", "small-a100", "overall", "aimed at", "0.985", "Calculon", "vTrain"):
        assert part in printed
    error = 100 * ran[0]["clusters"]["made-a100"]["mape_after"]["5"]
    assert f"{error:.1f} %" in printed


def test_tables_without_a_row_give_nulls_throughout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    golden = written(tmp_path / "golden.csv", [], GOLDEN)
    given = [*tables(tmp_path, times=[], sizes=[]), str(golden), "--memory-reference", str(golden)]
    assert main([*given, "--draws", "1", "--json", str(out)]) == 0
    figures = json.loads(out.read_text(), parse_constant=pytest.fail)
    of_2026 = ("peak_mape_zero_shot", "peak_mape_calibrated", "false_oom")
    assert [figures["models_2026"][name] for name in of_2026] == [None] * 3
    assert figures["clusters"] == {}
    after = figures["overall"].pop("mape_after")
    assert figures["overall"].pop("rows") == 0
    assert set(figures["overall"].values()) == set(after.values()) == {None}
    assert figures["memory"].pop("clusters") == {}
    assert set(figures["memory"].values()) == {None}
    assert math.isfinite(figures["speed"]["microseconds_for_one"])
    assert "–" in capsys.readouterr().out


def test_a_bad_cell_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = tables(tmp_path, times=[{**PLAIN, "num_layers": "many"}], sizes=[])
    assert main(given) == 2
    printed = capsys.readouterr().err.strip().splitlines()[-1]
    assert printed.startswith("accuracy: ")
    assert "line 2: num_layers='many' is no number" in printed


def test_rows_on_a_gpu_without_a_data_sheet_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tables(tmp_path, times=[{**PLAIN, "gpu": "TPU v4"}], sizes=[])
    assert main([*given, "--draws", "1"]) == 0
    assert "1 on a GPU whose data sheet is not known" in capsys.readouterr().out


def test_a_missing_file_and_a_missing_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tables(tmp_path, times=[], sizes=[])
    written(tmp_path / "memory.csv", [], MEMORY[1:])
    assert main(given) == 2
    assert "1 column is missing: cluster" in capsys.readouterr().err
    (tmp_path / "memory.csv").unlink()
    assert main(given) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_folder_that_is_not_there_is_told_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tables(tmp_path, times=[], sizes=[])
    assert main([*given, "--json", str(tmp_path / "none" / "a.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("draws", ["0", "-1", "many"])
def test_draws_are_a_whole_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], draws: str
) -> None:
    given = tables(tmp_path, times=[], sizes=[])
    with pytest.raises(SystemExit) as ended:
        main([*given, f"--draws={draws}"])
    assert ended.value.code == 2
    assert "is no whole number from 1 on" in capsys.readouterr().err


def test_help_names_the_columns_and_how_gaps_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_status:
        main(["--help"])
    printed = capsys.readouterr().out
    assert exit_status.value.code == 0
    for column in (*THROUGHPUT, *MEMORY):
        assert column in printed
    assert "stage" in printed.split("Columns")[0]
