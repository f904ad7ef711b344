"""What bites in DeepHyper 0.13, and that none of it bites here.

The first tests show a trap itself, so that a release which mends or moves it is noticed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deephyper.hpo import CBO, HpProblem
from deephyper.skopt.optimizer.optimizer import ExhaustedFailures

from autotune.search import Proposer, SearchTrial
from autotune.search.layouts import POINT_DIMENSIONS
from search_spaces.strategy import Strategy
from tests.autotune.search.scene import (
    crashed,
    layouts_of,
    ok,
    oom,
    space_22b,
)


def stock(**settings: Any) -> Any:
    problem = HpProblem(seed=1)
    problem.add_hyperparameter((1, 1000), "x")
    options = {"acq_optimizer": "sampling", "checkpoint_history_to_csv": False} | settings
    return CBO(problem, random_state=1, log_dir=tempfile.gettempdir(), **options)


def strategies(count: int, *, fitting: bool | None = None) -> list[Strategy]:
    layouts = layouts_of(space_22b())
    fits = layouts.memory_gib <= layouts.memory_limit_gib
    rows = np.flatnonzero(np.ones_like(fits) if fitting is None else fits == fitting)
    chosen = np.random.default_rng(4).choice(rows, count, replace=False)
    return [layouts.lattice.strategy(int(row)) for row in chosen]


def results(count: int) -> list[SearchTrial]:
    return [ok(space_22b(), strategy) for strategy in strategies(count, fitting=True)]


def proposer(seed: int = 3) -> Proposer:
    return Proposer(space_22b(), objective="tokens_per_s", seed=seed)


def test_trap_a_hundred_failures_end_a_stock_search() -> None:
    with pytest.raises(ExhaustedFailures):
        stock().tell([({"x": x}, "F") for x in range(1, 121)])


def test_120_failures_do_not_end_ours() -> None:
    failures = [oom(s) for s in strategies(120, fitting=False)]
    seen = [*failures, *results(5), *map(crashed, strategies(150)[120:])]
    assert len(proposer().propose(seen, count=2, free_nodes=8)) == 2


def test_failures_alone_do_not_make_the_choice_random() -> None:
    """DeepHyper counts successes towards its random phase; here the cost model leads it."""
    failures = [oom(s) for s in strategies(60, fitting=False)]
    chosen = [
        proposer(seed).propose(failures, count=1, free_nodes=8)[0].strategy for seed in range(3)
    ]
    layouts = layouts_of(space_22b())
    rows = [layouts.row_of(strategy) for strategy in chosen]
    assert len(set(rows)) == 1
    assert layouts.memory_gib[rows[0]] <= layouts.memory_limit_gib


def test_trap_stock_repeats_a_point_until_it_hears_a_result() -> None:
    search = stock(n_initial_points=1, acq_func="UCB")
    search.tell([({"x": x}, float(x)) for x in range(1, 20)])
    assert search.ask(1) == search.ask(1)


@pytest.mark.parametrize("count", [0, 30])
def test_numpys_global_state_is_neither_read_nor_written(count: int) -> None:
    seen = [ok(space_22b(), strategy) for strategy in strategies(count)]
    answers = []
    for seed in (1, 2):
        np.random.seed(seed)
        before = np.random.get_state()[1].copy()  # type: ignore[index]
        answers.append(proposer().propose(seen, count=2, free_nodes=8))
        assert np.array_equal(before, np.random.get_state()[1])  # type: ignore[index]
    assert answers[0] == answers[1]


def test_names_are_alphabetical_as_deephyper_returns_them() -> None:
    problem = HpProblem(seed=1)
    for name in reversed(POINT_DIMENSIONS):
        problem.add_hyperparameter([1, 2], name)
    assert problem.hyperparameter_names == list(POINT_DIMENSIONS)


def test_a_whole_number_and_a_log_of_zero_are_valid_results() -> None:
    """DeepHyper takes integers for failures in places, and loses an objective of exactly 0.0."""
    sentence = strategies(4, fitting=True)
    rates = [1, 2, 3, 1.0]
    seen = [
        SearchTrial(strategy=s, state="ok", iteration_time_s=r)
        for s, r in zip(sentence, rates, strict=True)
    ]
    as_floats = [
        SearchTrial(strategy=s, state="ok", iteration_time_s=float(r))
        for s, r in zip(sentence, rates, strict=True)
    ]
    assert proposer().propose(seen, count=2, free_nodes=8) == proposer().propose(
        as_floats, count=2, free_nodes=8
    )


def test_proposing_writes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    proposer().propose(results(5), count=2, free_nodes=8)
    assert list(tmp_path.iterdir()) == []


def test_importing_the_search_does_not_import_deephyper() -> None:
    """It takes seconds, and only a process that proposes needs it."""
    code = "import sys, autotune.search; assert 'deephyper' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
