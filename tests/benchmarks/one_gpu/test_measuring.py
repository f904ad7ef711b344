"""Real trials on the CPU, into a table and again."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from search_spaces.catalog.amd import InstalledGpu
from search_spaces.catalog.local import machine_of_gpus
from search_spaces.errors import InvalidInput
from tests.benchmarks.one_gpu.__main__ import main
from tests.benchmarks.one_gpu.measuring import (
    COMMAND,
    Bench,
    Broken,
    bench_here,
    measure,
    request_of,
)
from tests.benchmarks.one_gpu.models import CPU_MODELS
from tests.benchmarks.one_gpu.plan import PlannedTrial, one_gpu, plan
from tests.benchmarks.one_gpu.power import idle_watt
from tests.benchmarks.one_gpu.table import COLUMNS, MeasuredTrial, append, header, line, read_table
from tests.requirement import require

pytestmark = pytest.mark.xdist_group("one-gpu")  # one plan, and one backend, for all

GPU = one_gpu(machine_of_gpus([InstalledGpu("NVIDIA H100 80GB HBM3", 79.6, 700.0)]))
WATTS = 250.0


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """One for all: its backend imports torch and DeepSpeed once."""
    require(find_spec("torch") and find_spec("deepspeed"), "torch and deepspeed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        made = bench_here()
        yield made
        made.backend.close()


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    require(find_spec("torch") and find_spec("deepspeed"), "torch and deepspeed")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that tells the same power whenever it is asked."""
    folder = tmp_path / "bin"
    folder.mkdir()
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho {WATTS:.2f}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def changed(trial: PlannedTrial, **strategy: Any) -> PlannedTrial:
    return replace(trial, strategy=replace(trial.strategy, **strategy))


def ignored(_: str) -> None:
    pass


def test_trials_run_and_a_cut_run_goes_on(bench: Bench, tmp_path: Path) -> None:
    file, said = tmp_path / "trials.csv", list[str]()
    small, other = plan(bench.machine, quick=True)[:2]
    measure([small], file, replace(bench, gpus=4), say=said.append)
    with file.open(newline="") as opened:
        (cells,) = csv.DictReader(opened)
    assert tuple(cells) == COLUMNS
    assert (cells["status"], cells["num_gpus"], cells["gpu"]) == ("ok", "1", bench.machine.gpu)
    assert 0 < float(cells["peak_memory_gb"]) <= bench.machine.memory_gib
    assert float(cells["iteration_time_s"]) > 0
    assert cells["gpu_joules_per_token"] == ""
    assert "several GPUs" in cells["note"]
    assert cells["source"].startswith(COMMAND)
    assert "torch 2" in cells["source"]
    assert "DeepSpeed 0" in cells["framework"]
    assert "GiB" in said[-1]

    first = file.read_text()
    append(file, line(read_table(file).rows[0], bench.machine)[:-20])
    too_large = changed(other, micro_batch_size=128, activation_checkpointing="none")
    said.clear()
    measure([small, too_large], file, bench, say=said.append)
    assert file.read_text().startswith(first)
    rows = read_table(file).rows
    assert [row.key for row in rows] == [small.key, too_large.key]
    assert [row.status for row in rows] == ["ok", "oom"]
    assert (rows[1].iteration_time_s, rows[1].peak_memory_gib) == (None, None)
    assert "allocate" in rows[1].note
    assert "1 of 2 trials are in" in said[0]

    finished = file.read_bytes()
    measure([small, too_large], file, bench, say=said.append)
    assert file.read_bytes() == finished


@pytest.mark.usefixtures("nvidia_smi")
def test_energy_is_the_power_through_the_measured_iterations(bench: Bench, tmp_path: Path) -> None:
    """Long enough for a few samples, which come once a second."""
    long = changed(
        plan(bench.machine)[0],
        micro_batch_size=8,
        gradient_accumulation_steps=16,
        zero_stage=0,
    )
    long = replace(long, transformer=CPU_MODELS[0], predicted_time_s=2.0)
    file = tmp_path / "trials.csv"
    measure([long], file, bench, say=ignored)
    (row,) = read_table(file).rows
    assert row.iteration_time_s
    assert row.gpu_joules_per_token, row.note
    tokens = 8 * 16 * CPU_MODELS[0].seq_length
    assert row.gpu_joules_per_token == pytest.approx(WATTS * row.iteration_time_s / tokens, rel=0.5)
    assert "GPU power sampled" in row.note
    assert idle_watt() == WATTS


def test_three_crashes_in_a_row_end_it_and_are_tried_again(bench: Bench, tmp_path: Path) -> None:
    """The trainer runs no interleaved pipeline."""
    file = tmp_path / "trials.csv"
    crashing = [changed(trial, virtual_stages=2) for trial in plan(bench.machine)[:5]]
    for rows in (3, 6):
        with pytest.raises(Broken, match="virtual_stages"):
            measure(crashing, file, bench, say=ignored)
        assert [row.status for row in read_table(file).rows] == ["crashed"] * rows


def test_a_gpu_measures_for_some_seconds(tmp_path: Path) -> None:
    trial = replace(plan(GPU, quick=True)[0], predicted_time_s=0.5)
    request = request_of(trial, GPU, tmp_path / "a")
    assert request.protocol.measured_iterations == 16
    assert request.protocol.accumulations == (trial.strategy.gradient_accumulation_steps,)
    slow = request_of(replace(trial, predicted_time_s=9.0), GPU, tmp_path / "b")
    quick = request_of(replace(trial, predicted_time_s=0.01), GPU, tmp_path / "c")
    assert (slow.protocol.measured_iterations, quick.protocol.measured_iterations) == (3, 40)


def test_a_table_of_another_gpu_is_refused(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "trials.csv"
    trial = plan(bench.machine)[0]
    measure([], file, bench, say=ignored)
    assert file.read_text() == header()
    row = MeasuredTrial(transformer=trial.transformer, strategy=trial.strategy, status="oom")
    append(file, line(row, GPU))
    with pytest.raises(InvalidInput, match="another machine"):
        measure([trial], file, bench, say=ignored)


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--output", "/proc/nowhere/trials.csv"], "--output"),
        (["--output", __file__], "no table of trials"),
        (["--output", "trials.csv", "--most", "0"], "--most=0"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["measure", *arguments]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("one_gpu measure: ")
    assert told in last


@pytest.mark.usefixtures("on_the_cpu")
def test_the_plan_is_shown_and_nothing_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trials.csv"
    assert main(["measure", "--output", str(file), "--plan", "--most", "4"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 5
    assert all("of memory" in each for each in said[:4])
    assert "predicted" in said[4]
    assert not file.exists()


def test_without_a_command_it_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    assert "measure --output" in said
    assert "exit codes" in said
