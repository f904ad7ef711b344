"""Each search on a landscape that we made up: what it is told, and what it tries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotune.calibration.posterior import coordinates
from tests.benchmarks.accuracy.measurements import measured
from tests.benchmarks.replay import ours, peers
from tests.benchmarks.replay.landscapes import Landscape
from tests.benchmarks.replay.methods import METHODS, jobs
from tests.benchmarks.replay.test_landscapes import GRID, of
from tests.benchmarks.replay.trials import Chooser, Revealed, replay


@pytest.fixture(scope="module")
def landscape(tmp_path_factory: pytest.TempPathFactory) -> Landscape:
    """18 strategies of a machine that differs from its data sheet, a few out of memory."""
    rows, _ = measured("gpt-1.4b", count=18)
    other, _ = measured("llama-2-7b", count=18)
    for row in rows[::6]:
        row |= {"status": "oom", "iteration_time_s": ""}
    folder = tmp_path_factory.mktemp("rows")
    return next(each for each in of(folder, *rows, *other) if "gpt-1.4b" in each.name)


def tries(landscape: Landscape, choose: Chooser, *, most: int) -> list[int]:
    """What a search tries where nothing is ever good enough."""
    tried: list[int] = []
    latest = None
    while len(tried) < most and (row := choose(latest)) is not None:
        tried.append(row)
        rate = float(landscape.log_rate[row])
        latest = Revealed(row=row, log_rate=rate if np.isfinite(rate) else None)
    return tried


@pytest.mark.parametrize("name", [name for name in METHODS if "ours" in name])
def test_ours_tries_no_row_twice_and_the_same_ones_again(landscape: Landscape, name: str) -> None:
    start = METHODS[name].start
    tried = tries(landscape, start(landscape, 1), most=4)
    assert len(set(tried)) == len(tried) == 4
    assert tries(landscape, start(landscape, 1), most=4) == tried


@pytest.mark.parametrize("name", [name for name in METHODS if "ours" not in name])
def test_peers_try_every_row_once_and_in_the_same_order_again(
    landscape: Landscape, name: str
) -> None:
    start = METHODS[name].start
    tried = tries(landscape, start(landscape, 1), most=len(landscape) + 1)
    assert len(set(tried)) == len(tried)
    assert tries(landscape, start(landscape, 1), most=len(landscape) + 1) == tried
    if name != "pruned_grid":  # which drops some
        assert len(tried) == len(landscape)


@pytest.mark.parametrize("name", ["random", "optuna_tpe", "stock_deephyper", "ours_shuffled"])
def test_another_seed_is_another_search(landscape: Landscape, name: str) -> None:
    start = METHODS[name].start
    one, other = (tries(landscape, start(landscape, seed), most=3) for seed in (1, 2))
    assert one != other


def test_a_search_is_over_within_one_per_cent_of_the_best(landscape: Landscape) -> None:
    rates = landscape.log_rate
    best = int(np.nanargmax(rates))
    failing = np.flatnonzero(np.isnan(rates)).tolist()
    slow = int(np.nanargmin(rates))
    ended = replay(landscape, _in_order([failing[0], slow, failing[1], best, failing[2]]))
    assert (ended.trials, ended.solved, ended.failures) == (4, True, 2)
    assert ended.regrets[0] == 1.0
    assert (
        ended.regrets[1] == ended.regrets[2] == pytest.approx(-np.expm1(rates[slow] - rates[best]))
    )
    assert ended.regrets[3] == 0.0


def test_a_search_that_gives_up_counts_one_trial_more_than_there_are_rows(
    landscape: Landscape,
) -> None:
    slow = int(np.nanargmin(landscape.log_rate))
    ended = replay(landscape, _in_order([slow]))
    assert (ended.trials, ended.solved) == (len(landscape) + 1, False)


def test_a_row_tried_twice_is_a_mistake_of_the_search(landscape: Landscape) -> None:
    slow = int(np.nanargmin(landscape.log_rate))
    with pytest.raises(RuntimeError, match="tried twice"):
        replay(landscape, _in_order([slow, slow]))


def _in_order(rows: list[int]) -> Chooser:
    left = iter(rows)
    return lambda _latest: next(left, None)


def test_the_grid_begins_with_the_least_model_parallelism_and_drops_what_needs_more_memory(
    tmp_path: Path,
) -> None:
    [grid] = of(tmp_path, *GRID)
    sizes = [row.figures["micro_batch_size"] for row in grid.rows]
    choose = peers.pruned_grid(grid)
    first = choose(None)
    assert first == 0
    second = choose(Revealed(row=0, log_rate=None))
    # With two ways of tensor parallelism and one stage nothing fits any more.
    assert second is not None
    assert (grid.rows[second].figures["pipeline_parallel"], sizes[second]) == (2, 1)


def test_shuffled_predictions_are_of_other_strategies_that_lie_where_they_did(
    landscape: Landscape,
) -> None:
    order = np.random.default_rng(5).permutation(len(landscape))
    of_time, of_memory = ours.quantities(landscape, landscape.machine, order)
    true_time, true_memory = ours.quantities(landscape, landscape.machine, None)
    candidates = ours.numbered(landscape.columns)
    labelled = np.zeros(len(landscape))
    z = np.zeros(len(of_time.names))
    rates = landscape.log_tokens - of_time.log_value(z, candidates, labelled)
    true_rates = landscape.log_tokens - true_time.log_value(z, candidates, labelled)
    assert rates == pytest.approx(true_rates[order])
    z = np.zeros(len(of_memory.names))
    sizes = true_memory.log_value(z, candidates, labelled)
    assert of_memory.log_value(z, candidates, labelled) == pytest.approx(sizes[order])
    assert coordinates(candidates) == pytest.approx(coordinates(landscape.columns))
    assert landscape.prior == of_time.prior


def test_jobs_leave_out_warm_searches_where_nothing_is_known(
    landscape: Landscape, tmp_path: Path
) -> None:
    [alone] = of(tmp_path, *GRID)
    names = [(job.landscape, job.method) for job in jobs([landscape, alone], seeds=3)]
    assert names.count((0, "ours_warm")) == 10
    assert names.count((1, "ours_warm")) == 0
    assert names.count((1, "ours_wrong")) == 8
    assert names.count((1, "random")) == 3
    assert names.count((1, "ours")) == 1
