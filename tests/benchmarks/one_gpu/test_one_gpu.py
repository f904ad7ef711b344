"""The plan, real trials on the CPU into a table and again, and how predictions of it are judged."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.cost_model import Parameters, estimate, perturbed
from evaluators.trainer.support import unsupported_anywhere
from search_spaces.catalog.amd import InstalledGpu
from search_spaces.catalog.local import machine_of_cpus, machine_of_gpus
from search_spaces.errors import InvalidInput
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.rules import findings
from tests.benchmarks.accuracy.tables import TableError
from tests.benchmarks.one_gpu.__main__ import main
from tests.benchmarks.one_gpu.evaluation import evaluate
from tests.benchmarks.one_gpu.measuring import Bench, Broken, bench_here, measure
from tests.benchmarks.one_gpu.plan import BANDS, TRIALS, PlannedTrial, one_gpu, plan
from tests.benchmarks.one_gpu.table import (
    COLUMNS,
    MeasuredTrial,
    Table,
    append,
    begin,
    header,
    line,
    read_table,
)
from tests.requirement import require

pytestmark = pytest.mark.xdist_group("one-gpu")  # one plan, and one backend, for all

WATTS = 250.0


def gpu(name: str, memory_gib: float) -> Machine:
    known = machine_of_gpus([InstalledGpu(name, memory_gib, 400.0)])
    return replace(one_gpu(known), gpu_idle_watt=60.0, host_watt=0.0)


MACHINES = {
    "v100": gpu("Tesla V100-SXM2-16GB", 16.0),
    "a100": gpu("NVIDIA A100-SXM4-40GB", 40.0),
    "cpu": one_gpu(machine_of_cpus()),
}
A100 = MACHINES["a100"]


@cache
def planned(name: str) -> tuple[PlannedTrial, ...]:
    return tuple(plan(MACHINES[name]))


@pytest.mark.parametrize("name", MACHINES)
def test_a_plan_is_legal_and_reaches_up_to_the_memory_and_over_it(name: str) -> None:
    trials, machine = planned(name), MACHINES[name]
    for trial in trials:
        broken = findings(trial.strategy, trial.transformer, machine)
        assert not [each for each in broken if each.severity == "refuse"]
        assert unsupported_anywhere(trial.strategy) is None
    assert len({trial.key for trial in trials}) == len(trials) == (10 if name == "cpu" else TRIALS)
    for beginning in (trials, trials[: len(BANDS)]):
        fills = [trial.fill for trial in beginning]
        assert min(fills) < 0.5
        assert 0.2 <= sum(fill > 1.1 for fill in fills) / len(fills) <= 0.4
    assert tuple(plan(machine)) == trials


def test_a_plan_covers_what_one_gpu_can_vary() -> None:
    strategies = [trial.strategy for trial in planned("a100")]
    assert {s.zero_stage for s in strategies} == {0, 1, 2, 3}
    assert {s.activation_checkpointing for s in strategies} == {"none", "selective", "full"}
    assert {s.gradient_accumulation_steps for s in strategies} == {1, 2, 4, 8}
    assert {s.precision for s in strategies} == {"bf16", "fp16", "fp32"}
    assert {trial.strategy.precision for trial in planned("v100")} == {"fp16", "fp32"}
    assert {trial.transformer.experts is None for trial in planned("a100")} == {True, False}
    assert all(t.transformer.parameters <= 500e6 for t in plan(A100, quick=True))


# --- the table ---


def measured(trial: PlannedTrial, seed: int) -> MeasuredTrial:
    """As on a GPU that is slower than its kind, with a stack that takes more memory and power."""
    known = Parameters.default(A100)
    truth = replace(perturbed(known, seed=5), usable_memory=known.usable_memory)
    lattice = Lattice.of([trial.strategy], gpus_per_node=1)
    cost = estimate(trial.transformer, A100, lattice, parameters=truth)
    made = MeasuredTrial(transformer=trial.transformer, strategy=trial.strategy, status="oom")
    peak_gib = 1.3 * float(cost.memory_gib[0])
    if peak_gib > cost.memory_limit_gib:
        return made
    noise = np.exp(np.random.default_rng(seed).normal(0.0, 0.02, 3))
    assert cost.energy_joule is not None
    tokens = trial.strategy.global_batch_size(1) * trial.transformer.seq_length
    return replace(
        made,
        status="ok",
        iteration_time_s=1.4 * float(cost.iteration_time_s[0] * noise[0]),
        peak_memory_gib=peak_gib * float(noise[1]),
        gpu_joules_per_token=1.7 * float(cost.energy_joule[0] * noise[2]) / tokens,
        note='said "no", and why',
    )


@cache
def rows() -> tuple[MeasuredTrial, ...]:
    return tuple(measured(trial, seed) for seed, trial in enumerate(planned("a100")))


def written(file: Path, rows: tuple[MeasuredTrial, ...]) -> Path:
    append(file, header() + "".join(line(row, A100) for row in rows))
    return file


def test_what_is_written_is_read_and_a_line_that_was_cut_is_taken_away(tmp_path: Path) -> None:
    file = written(tmp_path / "trials.csv", rows())
    table = read_table(file)
    assert table.machine == A100
    assert [row.key for row in table.rows] == [row.key for row in rows()]
    assert table.rows[0].iteration_time_s == pytest.approx(rows()[0].iteration_time_s, rel=1e-5)
    whole = file.read_bytes()
    file.write_bytes(whole + line(rows()[0], A100).encode()[:50])
    begin(file)
    assert file.read_bytes() == whole
    file.write_text("a diary without a last line end")
    with pytest.raises(InvalidInput, match="no table of trials"):
        begin(file)


@pytest.mark.parametrize(
    ("column", "cell", "told"),
    [
        ("hidden_size", "768.5", "is no whole number"),
        ("data_parallel", "8", "trials of one GPU"),
        ("status", "fine", "valid: ok, oom, timeout, crashed"),
        ("iteration_time_s", "", "its time or its peak memory is missing"),
        ("gpu_memory_gb", "80", "one file, one GPU"),
    ],
)
def test_a_wrong_cell_is_named_with_its_line(
    tmp_path: Path, column: str, cell: str, told: str
) -> None:
    file = written(tmp_path / "trials.csv", rows()[:3])
    with file.open(newline="") as opened:
        table = list(csv.DictReader(opened))
    table[1][column] = cell
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, table[0])
        writer.writeheader()
        writer.writerows(table)
    with pytest.raises(TableError, match=told) as refused:
        read_table(file)
    assert str(refused.value).startswith(f"{file}, line 3: ")


# --- measuring ---


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """One for all: its backend imports torch and DeepSpeed once."""
    require(find_spec("torch") and find_spec("deepspeed"), "torch and deepspeed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        made = bench_here()
        yield made
        made.backend.close()


def changed(trial: PlannedTrial, **strategy: Any) -> PlannedTrial:
    return replace(trial, strategy=replace(trial.strategy, **strategy))


def test_trials_run_and_a_cut_run_goes_on(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second fills the memory; the third takes long enough for a few samples of the power,
    which nvidia-smi tells once a second."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho {WATTS:.2f}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    file, said = tmp_path / "trials.csv", list[str]()
    small, other = planned("cpu")[:2]
    measure([small], file, replace(bench, gpus=4), say=said.append)
    first = file.read_text()
    (row,) = read_table(file).rows
    assert tuple(first.splitlines()[0].split(",")) == COLUMNS
    assert (row.status, row.gpu_joules_per_token) == ("ok", None)
    assert "several GPUs" in row.note
    assert "torch 2" in row.source
    append(file, line(row, bench.machine)[:-20])
    too_large = changed(other, micro_batch_size=128, activation_checkpointing="none")
    long = changed(small, micro_batch_size=8, gradient_accumulation_steps=8, zero_stage=0)
    trials = [small, too_large, replace(long, predicted_time_s=2.0)]
    said.clear()
    measure(trials, file, bench, say=said.append)
    assert "1 of 3 trials are in" in said[0]
    assert file.read_text().startswith(first)
    _, full, sampled = read_table(file).rows
    assert (full.status, full.iteration_time_s) == ("oom", None)
    assert "allocate" in full.note
    tokens = 8 * 8 * long.transformer.seq_length
    assert sampled.iteration_time_s
    assert sampled.gpu_joules_per_token, sampled.note
    energy = WATTS * sampled.iteration_time_s / tokens
    assert sampled.gpu_joules_per_token == pytest.approx(energy, rel=0.5)
    finished = file.read_bytes()
    measure(trials, file, bench, say=said.append)
    assert file.read_bytes() == finished


def test_three_crashes_in_a_row_end_it_and_are_tried_again(bench: Bench, tmp_path: Path) -> None:
    """The trainer runs no interleaved pipeline."""
    file = tmp_path / "trials.csv"
    crashing = [changed(trial, virtual_stages=2) for trial in planned("cpu")[:5]]
    for count in (3, 6):
        with pytest.raises(Broken, match="virtual_stages"):
            measure(crashing, file, bench, say=lambda _: None)
        assert [row.status for row in read_table(file).rows] == ["crashed"] * count
    with pytest.raises(InvalidInput, match="another machine"):
        measure([], file, replace(bench, machine=A100), say=lambda _: None)


# --- the commands ---


def test_calibration_on_five_trials_tells_what_is_different_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = written(tmp_path / "trials.csv", rows()), tmp_path / "out.json"
    assert main(["evaluate", str(file), "--json", str(out), "--draws", "3"]) == 0
    said = capsys.readouterr().out
    document = json.loads(out.read_text())
    before, after = document["methods"]
    assert (before["name"], after["name"]) == ("zero-shot", "calibrated on 5")
    assert after["fit"]["ran"] + after["fit"]["ran_out"] == 3 * (len(rows()) - 5)
    for quantity in ("time", "memory", "energy"):
        assert after[quantity]["mean"] < 0.7 * before[quantity]["mean"]
        for method in (before, after):
            told = rf"{quantity} +{method['name']} .*{method[quantity]['mean']:.0%}"
            assert re.search(told, said), told
    assert after["time"]["coverage"] > 0.5
    assert before["time"]["bias"] == pytest.approx(1 / 1.4 - 1, abs=0.2)
    assert after["fit"]["foreseen"] > 0.8


def test_energy_that_was_not_measured_or_cannot_be_predicted_is_not_made_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    untold = tuple(replace(row, gpu_joules_per_token=None, note="no samples") for row in rows())
    file = written(tmp_path / "untold.csv", untold[:9])
    assert main(["evaluate", str(file), "--draws", "1"]) == 0
    assert re.search(r"zero-shot +not measured \(no samples\)", capsys.readouterr().out)
    file, unknown = tmp_path / "unknown.csv", replace(A100, gpu_idle_watt=None)
    append(file, header() + "".join(line(row, unknown) for row in rows()[:9]))
    assert main(["evaluate", str(file), "--draws", "1"]) == 0
    assert "not predicted: its power when idle is not known" in capsys.readouterr().out


def test_the_plan_is_shown_and_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    require(find_spec("torch") and find_spec("deepspeed"), "torch and deepspeed")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    file = tmp_path / "trials.csv"
    assert main(["measure", "--output", str(file), "--plan", "--most", "4"]) == 0
    assert capsys.readouterr().out.count("of memory") == 4
    assert not file.exists()
    for arguments, told in (
        (["measure", "--output", __file__], "no table of trials"),
        (["measure", "--output", "trials.csv", "--most", "0"], "--most=0"),
        (["evaluate", str(file)], "No such file"),
    ):
        assert main(arguments) == 2
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.startswith(f"one_gpu {arguments[0]}: ")
        assert told in last
    with pytest.raises(InvalidInput, match="too few"):
        evaluate(Table(machine=A100, rows=rows()[:7]), say=lambda _: None)
