"""The table: what is written is what is read, and what is no such table is refused."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from search_spaces.catalog.amd import InstalledGpu
from search_spaces.catalog.local import machine_of_cpus, machine_of_gpus
from search_spaces.errors import InvalidInput
from tests.benchmarks.accuracy.tables import TableError
from tests.benchmarks.one_gpu.plan import one_gpu, plan
from tests.benchmarks.one_gpu.table import (
    MeasuredTrial,
    Table,
    append,
    begin,
    header,
    line,
    read_table,
)

GPU = machine_of_gpus([InstalledGpu("NVIDIA H100 80GB HBM3", 79.6, 700.0)])
MACHINE = replace(one_gpu(GPU), gpu_idle_watt=70.0, host_watt=0.0)
pytestmark = pytest.mark.xdist_group("one-gpu")  # one plan, and one backend, for all


@pytest.fixture(scope="module")
def rows() -> tuple[MeasuredTrial, ...]:
    return tuple(
        MeasuredTrial(
            transformer=trial.transformer,
            strategy=trial.strategy,
            status="oom" if number % 3 == 2 else "ok",
            iteration_time_s=None if number % 3 == 2 else 0.5 + number,
            peak_memory_gib=None if number % 3 == 2 else 10.25 + number,
            gpu_joules_per_token=0.125 if number % 3 == 0 else None,
            framework="a trainer, 1.0",
            source="here",
            note='said "no", and why',
        )
        for number, trial in enumerate(plan(MACHINE)[:9])
    )


@pytest.fixture
def file(tmp_path: Path, rows: tuple[MeasuredTrial, ...]) -> Path:
    made = tmp_path / "trials.csv"
    append(made, header())
    for row in rows:
        append(made, line(row, MACHINE))
    return made


def test_what_is_written_is_read(file: Path, rows: tuple[MeasuredTrial, ...]) -> None:
    assert read_table(file) == Table(machine=MACHINE, rows=rows)


def test_a_table_of_a_cpu_is_read_anywhere(tmp_path: Path, rows: tuple[MeasuredTrial, ...]) -> None:
    machine = one_gpu(machine_of_cpus())
    file = tmp_path / "cpu.csv"
    append(file, header() + line(rows[0], machine))
    found = read_table(file).machine
    assert (found.gpu, found.memory_gib) == (machine.gpu, machine.memory_gib)
    assert (found.gpus_per_node, found.peak_tflops) == (1, None)


def test_a_line_that_was_cut_is_taken_away(file: Path, rows: tuple[MeasuredTrial, ...]) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole + line(rows[0], MACHINE).encode()[:50])
    begin(file)
    assert file.read_bytes() == whole
    begin(file)
    assert file.read_bytes() == whole


def test_a_header_that_was_cut_is_written_again(tmp_path: Path) -> None:
    file = tmp_path / "trials.csv"
    file.write_text(header()[:40])
    begin(file)
    assert file.read_text() == header()


@pytest.mark.parametrize("content", ["a diary without a last line end", "a,b\n1,2\n"])
def test_another_file_is_left_as_it_is(tmp_path: Path, content: str) -> None:
    file = tmp_path / "diary"
    file.write_text(content)
    with pytest.raises(InvalidInput, match="no table of trials"):
        begin(file)
    assert file.read_text() == content


@pytest.mark.parametrize(
    ("column", "cell", "told"),
    [
        ("hidden_size", "768.5", "is no whole number"),
        ("zero_stage", "", "is no whole number"),
        ("data_parallel", "8", "trials of one GPU"),
        ("status", "fine", "valid: ok, oom, timeout, crashed"),
        ("iteration_time_s", "-1", "must be a number above 0"),
        ("iteration_time_s", "", "its time or its peak memory is missing"),
        ("gpu_memory_gb", "40", "one file, one GPU"),
    ],
)
def test_a_wrong_cell_is_named_with_its_line(file: Path, column: str, cell: str, told: str) -> None:
    with file.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    rows[1][column] = cell
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    with pytest.raises(TableError, match=told) as refused:
        read_table(file)
    assert str(refused.value).startswith(f"{file}, line 3: ")


def test_a_table_without_a_row_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    append(file, header())
    with pytest.raises(TableError, match="has no rows"):
        read_table(file)
