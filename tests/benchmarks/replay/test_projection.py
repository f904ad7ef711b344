"""Pairs of runs that differ in replicas alone, and how they are told from one another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.measurements import timed
from tests.benchmarks.replay.landscapes import stacks, usable
from tests.benchmarks.replay.projection import Pair, figures, pairs


def found(folder: Path, *rows: Mapping[str, object]) -> list[Pair]:
    read = timed(folder, *rows)
    facts = Facts.of(read)
    return [pair for stack in stacks(usable(read, facts)[0], facts) for pair in pairs(stack)]


def run(replicas: int, **cells: object) -> Mapping[str, object]:
    """PLAIN's strategy with 16 micro-batches of 2 on each of its replicas."""
    return {
        "data_parallel": replicas,
        "num_gpus": 8 * replicas,
        "global_batch_size": 32 * replicas,
        **cells,
    }


def test_every_narrow_run_tells_of_every_wider_one(tmp_path: Path) -> None:
    ratios = [pair.ratio for pair in found(tmp_path, run(2), run(4), run(32))]
    assert sorted(ratios) == [2, 8, 16]


@pytest.mark.parametrize(
    "other",
    [
        {"micro_batch_size": 4},
        {"global_batch_size": 64},
        {"tensor_parallel": 8, "num_gpus": 64},
        {"attention_kernel": "torch"},
        {"zero_shard_gpus": 2},
        {"status": "oom", "iteration_time_s": ""},
    ],
)
def test_what_else_differs_makes_no_pair(tmp_path: Path, other: Mapping[str, object]) -> None:
    assert found(tmp_path, run(2), {**run(4), **other}) == []


def test_the_measured_time_carries_over(tmp_path: Path) -> None:
    """About that of the narrow run, whatever the formulas say of it; then the wide one is
    twice as slow."""
    [pair] = found(tmp_path, run(2, iteration_time_s=20.0), run(4, iteration_time_s=20.0))
    assert abs(pair.log_error) < 0.07
    assert pair.covered
    [pair] = found(tmp_path, run(2, iteration_time_s=20.0), run(4, iteration_time_s=40.0))
    assert pair.log_error == pytest.approx(-0.69, abs=0.07)
    assert not pair.covered


def test_figures_of_each_band() -> None:
    errors = [(2.0, 0.01, True), (4.0, -0.03, False), (5.0, 0.2, False), (64.0, 0.05, True)]
    made = [Pair(ratio=r, log_error=error, covered=c) for r, error, c in errors]
    bands = figures(made)
    assert [band["pairs"] for band in bands.values()] == [2, 1, 1]
    assert bands["2-4"]["median"] == pytest.approx(0.02, abs=1e-3)
    assert bands["2-4"]["coverage"] == 0.5
    assert figures([])["16+"] == {"median": None, "p90": None, "coverage": None, "pairs": 0}
