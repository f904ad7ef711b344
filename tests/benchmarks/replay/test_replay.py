"""The replays: what a landscape is, what searches try on it, and the whole command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.calibration.posterior import coordinates
from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.measurements import PLAIN, Cells, measured, timed, written
from tests.benchmarks.accuracy.tables import OPTIONAL, THROUGHPUT
from tests.benchmarks.replay import ours
from tests.benchmarks.replay.grids import COLUMNS, first_regret, read_grids
from tests.benchmarks.replay.landscapes import Landscape, landscapes, stacks, usable
from tests.benchmarks.replay.methods import METHODS
from tests.benchmarks.replay.projection import Pair, pairs
from tests.benchmarks.replay.trials import Chooser, Revealed, replay
from tests.benchmarks.search_replay import main

GRID: tuple[Cells, ...] = tuple(
    {
        "tensor_parallel": tensor,
        "pipeline_parallel": pipeline,
        "data_parallel": 16 // (tensor * pipeline),
        "micro_batch_size": size,
        "iteration_time_s": 5.0 + tensor + 0.1 * pipeline - 0.01 * size,
    }
    for tensor in (2, 4)
    for pipeline in (1, 2)
    for size in (1, 2, 4)
)
"""Twelve strategies of PLAIN's model."""
FAILED: Cells = {"status": "oom", "iteration_time_s": ""}


def of(folder: Path, *rows: Cells) -> list[Landscape]:
    read = timed(folder, *rows)
    facts = Facts.of(read)
    kept, _ = usable(read, facts)
    return [landscape for stack in stacks(kept, facts) for landscape in landscapes(stack)]


@pytest.fixture(scope="module")
def landscape(tmp_path_factory: pytest.TempPathFactory) -> Landscape:
    """18 strategies of a machine that differs from its data sheet, a few out of memory."""
    rows, _ = measured("gpt-1.4b", count=18)
    other, _ = measured("llama-2-7b", count=18)
    for row in rows[::6]:
        row |= FAILED
    folder = tmp_path_factory.mktemp("rows")
    return next(each for each in of(folder, *rows, *other) if "gpt-1.4b" in each.name)


def test_strategies_of_a_landscape(tmp_path: Path) -> None:
    """One that was measured again counts once, by the median of what ran; the rate is tokens/s on
    one GPU; eleven strategies are too few."""
    again = [{**GRID[0], "iteration_time_s": seconds} for seconds in (8.0, 10.0)]
    wider: Cells = {**GRID[0], "num_gpus": 32, "data_parallel": 8}
    [found] = of(tmp_path, *GRID, *again, {**GRID[0], **FAILED}, {**GRID[1], **FAILED}, wider)
    assert found.name == "made-a100 / Megatron-LM / A100-80GB / GPT 22B / 16 GPUs / 2048 tokens"
    assert len(found) == len(GRID)
    assert np.exp(found.measured.log_time[0]) == pytest.approx(8.0)
    rate = 64 * 2048 / float(str(GRID[2]["iteration_time_s"])) / 16
    assert np.exp(found.log_rate[2]) == pytest.approx(rate)
    assert found.earlier.columns["world_size"].tolist() == [32]
    assert of(tmp_path, *GRID[1:], GRID[1]) == []
    [found] = of(tmp_path, {**GRID[0], **FAILED}, *GRID[1:])
    assert np.flatnonzero(np.isnan(found.log_rate)).tolist() == [0]


def tries(landscape: Landscape, choose: Chooser, *, most: int) -> list[int]:
    """What a search tries where nothing is ever good enough."""
    tried: list[int] = []
    latest = None
    while len(tried) < most and (row := choose(latest)) is not None:
        tried.append(row)
        rate = float(landscape.log_rate[row])
        latest = Revealed(row=row, log_rate=rate if np.isfinite(rate) else None)
    return tried


@pytest.mark.parametrize("name", METHODS)
def test_a_search_tries_no_row_twice_and_the_same_ones_again(
    landscape: Landscape, name: str
) -> None:
    start, most = METHODS[name].start, 4 if "ours" in name else 8
    tried = tries(landscape, start(landscape, 1), most=most)
    assert len(set(tried)) == len(tried) == most
    assert tries(landscape, start(landscape, 1), most=most) == tried


def test_a_search_is_over_within_one_per_cent_of_the_best(landscape: Landscape) -> None:
    def in_order(*rows: int) -> Chooser:
        left = iter(rows)
        return lambda _latest: next(left, None)

    rates = landscape.log_rate
    best, slow = int(np.nanargmax(rates)), int(np.nanargmin(rates))
    failing = np.flatnonzero(np.isnan(rates)).tolist()
    ended = replay(landscape, in_order(failing[0], slow, failing[1], best, failing[2]))
    assert (ended.trials, ended.solved, ended.failures) == (4, True, 2)
    lost = -float(np.expm1(rates[slow] - rates[best]))
    assert ended.regrets == pytest.approx((1.0, lost, lost, 0.0))
    gave_up = replay(landscape, in_order(slow))
    assert (gave_up.trials, gave_up.solved) == (len(landscape) + 1, False)


def test_shuffled_predictions_are_of_other_strategies_that_lie_where_they_did(
    landscape: Landscape,
) -> None:
    order = np.random.default_rng(5).permutation(len(landscape))
    shuffled, _ = ours.quantities(landscape, landscape.machine, order)
    true, _ = ours.quantities(landscape, landscape.machine, None)
    candidates, labelled = ours.numbered(landscape.columns), np.zeros(len(landscape))
    z = np.zeros(len(true.names))
    rates = landscape.log_tokens - shuffled.log_value(z, candidates, labelled)
    true_rates = landscape.log_tokens - true.log_value(z, candidates, labelled)
    assert rates == pytest.approx(true_rates[order])
    assert coordinates(candidates) == pytest.approx(coordinates(landscape.columns))


def run(replicas: int, **cells: object) -> Cells:
    """PLAIN's strategy with 16 micro-batches of 2 on each of its replicas."""
    alike = {"num_gpus": 8 * replicas, "global_batch_size": 32 * replicas}
    return {"data_parallel": replicas, **alike, **cells}


def found(folder: Path, *rows: Cells) -> list[Pair]:
    read = timed(folder, *rows)
    facts = Facts.of(read)
    return [pair for stack in stacks(usable(read, facts)[0], facts) for pair in pairs(stack)]


def test_runs_that_differ_in_replicas_alone_are_told_from_one_another(tmp_path: Path) -> None:
    ratios = [pair.ratio for pair in found(tmp_path, run(2), run(4), run(32))]
    assert sorted(ratios) == [2, 8, 16]
    for other in ({"micro_batch_size": 4}, {"attention_kernel": "torch"}, FAILED):
        assert found(tmp_path, run(2), run(4, **other)) == []
    [pair] = found(tmp_path, run(2, iteration_time_s=20.0), run(4, iteration_time_s=40.0))
    assert pair.log_error == pytest.approx(-0.69, abs=0.07)
    assert not pair.covered


FOLDED: Cells = {
    **PLAIN,
    **dict.fromkeys(("data_parallel", "micro_batch_size", "iteration_time_s"), ""),
    "grid_id": "mixtral",
    "gpu": "H100",
    "num_gpus": 64,
    "num_layers": 16,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "ffn_hidden_size": 14336,
    "seq_length": 4096,
    "gated_mlp": 1,
    "num_experts": 8,
    "moe_top_k": 2,
    "moe_ffn_hidden_size": 14336,
    "global_batch_size": 256,
    "zero_stage": 1,
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "expert_parallel": 8,
    "expert_tensor_parallel": 1,
}
CUT: Cells = {**FOLDED, "tensor_parallel": 8, "expert_parallel": 1, "expert_tensor_parallel": 8}


@pytest.mark.parametrize(
    ("folded", "cut", "regret"),
    [
        ([{"mfu": 0.5}], 0.1, 0.0),
        ([{"mfu": 0.45}], 0.5, 0.1),
        ([{"status": "oom"}], 0.5, 1.0),
        ([{"mfu": 0.2}, {"mfu": 0.4}], 0.3, 0.0),
    ],
)
def test_the_regret_of_a_first_choice(
    folded: list[Cells], cut: float, regret: float, tmp_path: Path
) -> None:
    """Whole experts apart are predicted to be much faster than cut ones; what a description does
    not tell apart is one layout."""
    rows = [*[FOLDED | ran for ran in folded], CUT | {"mfu": cut}]
    path = written(tmp_path / "grids.csv", rows, (*COLUMNS, *OPTIONAL))
    assert first_regret(read_grids([path])) == pytest.approx(regret)


@pytest.mark.long
def test_the_document_the_tables_and_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = [name for name in THROUGHPUT if name != "zero_shard_gpus"]
    tables = [
        str(written(tmp_path / f"{name}.csv", measured(name, count=count)[0], columns))
        for name, count in (("gpt-1.4b", 13), ("llama-2-7b", 4))
    ]
    rows = [FOLDED | {"mfu": 0.5}, CUT | {"mfu": 0.2}]
    grids = str(written(tmp_path / "grids.csv", rows, (*COLUMNS, *OPTIONAL)))
    out, picture = tmp_path / "out.json", tmp_path / "regret.svg"
    given = ["--throughput", *tables, "--grids", grids, "--seeds", "1", "--processes", "1"]
    assert main([*given, "--json", str(out), "--picture", str(picture)]) == 0
    whole: dict[str, Any] = json.loads(out.read_text(), parse_constant=pytest.fail)
    assert list(whole["overall"]) == list(METHODS)
    assert len(whole["landscapes"]) == 1
    for by_method in (whole["overall"], *whole["landscapes"].values()):
        for of_method in by_method.values():
            assert set(of_method) == {"median", "p90", "worst", "failures", "solved"}
    assert whole["overall"]["ours"]["solved"] == 1.0
    assert whole["projection"]["2-4"].keys() == {"median", "p90", "coverage", "pairs"}
    assert whole["own_stop"]["within_1_percent"] in (0.0, 1.0)
    assert whole["grids_2026"] == {"grids": 1, "mean_regret_first": 0.0, "within_5_percent": 1}
    assert "Optuna" in picture.read_text()
    printed = capsys.readouterr().out
    assert all(name in printed for name in METHODS)
    assert main(["--throughput", str(tmp_path / "none.csv")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("search_replay: ")
