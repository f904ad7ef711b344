"""Errors of predictions, on trials of a machine whose constants are not the usual ones."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from autotune.cost_model import Parameters, estimate, perturbed
from search_spaces.catalog.amd import InstalledGpu
from search_spaces.catalog.local import machine_of_gpus
from search_spaces.errors import InvalidInput
from search_spaces.lattice import Lattice
from tests.benchmarks.one_gpu.__main__ import main
from tests.benchmarks.one_gpu.evaluation import CALIBRATED_ON, Errors, errors, evaluate
from tests.benchmarks.one_gpu.plan import PlannedTrial, one_gpu, plan
from tests.benchmarks.one_gpu.table import MeasuredTrial, Table, append, header, line

pytestmark = pytest.mark.xdist_group("one-gpu")  # one plan, and one backend, for all

MACHINE = replace(
    one_gpu(machine_of_gpus([InstalledGpu("NVIDIA A100-SXM4-40GB", 40.0, 400.0)])),
    gpu_idle_watt=60.0,
    host_watt=0.0,
)
KNOWN = Parameters.default(MACHINE)
TRUTH = replace(perturbed(KNOWN, seed=5), usable_memory=KNOWN.usable_memory)
SLOWER, LARGER, THIRSTIER, REPEATS = 1.4, 1.3, 1.2, 0.02


def measured(trial: PlannedTrial, seed: int) -> MeasuredTrial:
    """As on a GPU that is slower than its kind, with a stack that takes more memory and power."""
    lattice = Lattice.of([trial.strategy], gpus_per_node=1)
    cost = estimate(trial.transformer, MACHINE, lattice, parameters=TRUTH)
    peak_gib = LARGER * float(cost.memory_gib[0])
    if peak_gib > cost.memory_limit_gib:
        return MeasuredTrial(transformer=trial.transformer, strategy=trial.strategy, status="oom")
    noise = np.exp(np.random.default_rng(seed).normal(0.0, REPEATS, 3))
    seconds = SLOWER * float(cost.iteration_time_s[0] * noise[0])
    assert cost.energy_joule is not None
    tokens = trial.strategy.global_batch_size(1) * trial.transformer.seq_length
    gpu_joules_per_token = SLOWER * THIRSTIER * float(cost.energy_joule[0] * noise[2]) / tokens
    return MeasuredTrial(
        transformer=trial.transformer,
        strategy=trial.strategy,
        status="ok",
        iteration_time_s=seconds,
        peak_memory_gib=peak_gib * float(noise[1]),
        gpu_joules_per_token=gpu_joules_per_token,
    )


@cache
def rows() -> tuple[MeasuredTrial, ...]:
    return tuple(measured(trial, seed) for seed, trial in enumerate(plan(MACHINE)))


def written(file: Path, rows: tuple[MeasuredTrial, ...]) -> Path:
    append(file, header() + "".join(line(row, MACHINE) for row in rows))
    return file


def test_calibration_on_five_trials_tells_what_is_different_here() -> None:
    crashed = replace(rows()[0], status="crashed")
    table, said = Table(machine=MACHINE, rows=(*rows(), crashed)), list[str]()
    before, after = evaluate(table, draws=3, say=said.append)
    ran = sum(row.status == "ok" for row in rows())
    assert (before.draws, after.draws) == (1, 3)
    assert before.time.predictions == before.fit.ran == ran
    assert before.fit.ran_out == len(rows()) - ran >= 5
    assert after.fit.ran + after.fit.ran_out == 3 * (len(rows()) - CALIBRATED_ON)
    assert len(said) == 1 + 3
    assert mean_of(after.time) < 0.7 * mean_of(before.time)
    assert mean_of(after.memory) < 0.7 * mean_of(before.memory)
    assert mean_of(after.energy) < 0.7 * mean_of(before.energy)
    assert 0.5 < (after.time.coverage or 0.0) <= 1.0
    assert 0.5 < (after.memory.coverage or 0.0) <= 1.0
    assert before.time.bias == pytest.approx(1 / SLOWER - 1, abs=0.2)
    assert (after.fit.foreseen or 0.0) > 0.8
    assert after.fit.brier < before.fit.brier


def mean_of(errors: Errors) -> float:
    assert errors.mean is not None
    return errors.mean


def test_errors_are_relative_to_what_was_measured() -> None:
    measured = np.array([1.0, 2.0, np.nan, 4.0])
    predicted = np.array([1.1, 1.0, 9.0, 4.0])
    found = errors(predicted, measured, interval=(predicted * 0.9, predicted * 1.05))
    assert found.predictions == 3
    assert found.mean == pytest.approx((0.1 + 0.5 + 0.0) / 3)
    assert found.median == pytest.approx(0.1)
    assert found.bias == pytest.approx(0.0)
    assert found.coverage == pytest.approx(2 / 3)


def test_the_command_prints_and_writes_all_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = rows()[:12]
    file, out = written(tmp_path / "trials.csv", few), tmp_path / "out.json"
    assert main(["evaluate", str(file), "--json", str(out), "--draws", "2"]) == 0
    said = capsys.readouterr().out
    document = json.loads(out.read_text())
    assert [method["name"] for method in document["methods"]] == ["zero-shot", "calibrated on 5"]
    assert document["machine"]["gpu"] == MACHINE.gpu
    assert document["trials"]["ok"] + document["trials"]["oom"] == 12
    for method in document["methods"]:
        for quantity in ("time", "memory", "energy"):
            told = rf"{quantity} +{method['name']} .*{method[quantity]['mean']:.0%}"
            assert re.search(told, said), told
        assert f"of {method['fit']['ran_out']} foreseen" in said


def test_energy_that_was_not_measured_is_not_made_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note = "no power was sampled"
    untold = tuple(replace(row, gpu_joules_per_token=None, note=note) for row in rows()[:9])
    file = written(tmp_path / "trials.csv", untold)
    assert main(["evaluate", str(file), "--draws", "1"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"energy +zero-shot +not measured \(no power was sampled\)", said)


def test_energy_is_not_predicted_where_the_power_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trials.csv"
    unknown = replace(MACHINE, gpu_idle_watt=None)
    append(file, header() + "".join(line(row, unknown) for row in rows()[:9]))
    assert main(["evaluate", str(file), "--draws", "1"]) == 0
    assert "not predicted: its power when idle is not known" in capsys.readouterr().out


def test_too_few_trials_are_refused() -> None:
    with pytest.raises(InvalidInput, match="too few"):
        evaluate(Table(machine=MACHINE, rows=rows()[:7]), say=lambda _: None)
    ran_out = tuple(row for row in rows() if row.status == "oom")
    with pytest.raises(InvalidInput, match="too few"):
        evaluate(Table(machine=MACHINE, rows=ran_out * 3), say=lambda _: None)


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "No such file"), ("a,b\n1,2\n", "columns are missing: cluster, gpu")],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, told: str
) -> None:
    file = tmp_path / "trials.csv"
    if content is not None:
        file.write_text(content)
    assert main(["evaluate", str(file)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith(f"one_gpu evaluate: {file}: ")
    assert told in said.err


def test_a_json_file_that_cannot_be_written_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "trials.csv", rows()[:9])
    out = tmp_path / "no" / "out.json"
    assert main(["evaluate", str(file), "--draws", "1", "--json", str(out)]) == 2
    assert "--json" in capsys.readouterr().err
