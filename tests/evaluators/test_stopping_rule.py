"""How long a trial goes on measuring."""

from __future__ import annotations

import ast
import random
import sys
from dataclasses import replace
from inspect import getsource
from math import inf
from statistics import fmean, median, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.measurement.metrics import FEWEST_OF_LONG
from evaluators import stopping_rule
from evaluators.adapter import expression, figures, rank_process, readers
from evaluators.program import local_ranks, start_watch
from evaluators.stopping_rule import FEWEST, Verdict, standard_error_s, verdict
from evaluators.trial import TrialProtocol

GO_ON, ENOUGH, GIVE_UP, OUT_OF_TIME = Verdict
QUIET = (1.0, 1.001, 0.999)
NOISY = (1.0, 1.1, 0.9)


def decided(*times_s: float, **changes: float) -> Verdict:
    rule: dict[str, float] = {"least": 3, "most": 10, "target_spread": 0.01} | changes
    return verdict(times_s, **rule)  # type: ignore[arg-type]


def test_measuring_goes_on_until_the_spread_is_small() -> None:
    assert decided(*QUIET[:2]) is GO_ON  # the least number is not reached
    assert decided(*QUIET) is ENOUGH
    assert decided(*NOISY) is GO_ON
    assert decided(*NOISY, target_spread=0.1) is ENOUGH
    assert decided(*NOISY, most=3) is ENOUGH


def test_a_trial_takes_only_the_long_iterations_its_cost_assumes() -> None:
    assert FEWEST == FEWEST_OF_LONG


def test_two_long_iterations_that_agree_are_enough() -> None:
    assert decided(*QUIET[:2], long_s=0.9) is ENOUGH
    assert decided(*QUIET[:2], long_s=1.1) is GO_ON
    assert decided(*NOISY[:2], long_s=0.9) is GO_ON
    assert decided(1.0, long_s=0.9) is GO_ON


def test_a_trial_ends_early_if_the_rest_would_take_too_long() -> None:
    assert decided(*QUIET, left_s=-0.1) is OUT_OF_TIME
    assert decided(*QUIET, left_s=0.1) is ENOUGH
    assert decided(*QUIET[:2], left_s=-0.1) is GO_ON  # so far it has nothing


def test_noise_does_not_bring_about_a_timeout() -> None:
    assert decided(*NOISY, spare_s=0.99) is ENOUGH
    assert decided(*NOISY[:2], spare_s=-1.0) is GO_ON  # the least number is owed in any case


def test_a_trial_is_given_up_if_its_fastest_iteration_is_slow() -> None:
    assert decided(2.0, 2.01, give_up_above_s=1.9) is GIVE_UP
    assert decided(2.0, 2.01, give_up_above_s=1.999) is GO_ON
    assert decided(9.0, give_up_above_s=1.9) is GO_ON  # one alone may be slow by chance
    assert decided(9.0, 1.5, give_up_above_s=1.9) is GO_ON
    assert decided(*QUIET, give_up_above_s=0.9) is GIVE_UP


@pytest.mark.parametrize("count", [3, 5, 10])
def test_the_standard_error_is_that_of_the_median(count: int) -> None:
    draw = random.Random(count)
    samples = [[draw.gauss(100.0, 1.0) for _ in range(count)] for _ in range(4000)]
    true = pstdev([median(sample) for sample in samples])
    assert fmean(map(standard_error_s, samples)) == pytest.approx(true, rel=0.15)


def test_one_slow_iteration_hardly_widens_it() -> None:
    quiet = [1.0, 1.01, 0.99, 1.005, 0.995]
    assert standard_error_s([*quiet, 9.0]) < 2 * standard_error_s(quiet)
    assert standard_error_s([1.0]) == inf


@given(st.lists(st.floats(0.1, 10.0), min_size=0, max_size=20), st.integers(1, 5))
def test_measuring_stays_between_the_least_and_the_most(times_s: list[float], least: int) -> None:
    decision = decided(*times_s, least=least, most=2 * least)
    if len(times_s) < least:
        assert decision is GO_ON
    if len(times_s) >= 2 * least:
        assert decision is ENOUGH


def test_a_protocol_keeps_time_for_the_accumulations_to_come() -> None:
    protocol = TrialProtocol(accumulations=(4, 8), most_iterations=10, time_limit_s=40.0)
    owed_s = 2 * 2 * 1.0  # twice the micro-batches, two iterations in any case
    room_s = 0.5 * 40.0 - owed_s - 1.0
    assert protocol.verdict(4, (9.0, *NOISY), elapsed_s=room_s) is GO_ON
    assert protocol.verdict(4, (9.0, *NOISY), elapsed_s=room_s + 0.01) is ENOUGH
    assert protocol.verdict(8, NOISY, elapsed_s=room_s + owed_s) is GO_ON
    deep = replace(protocol, pipeline_wait=28.0)
    assert deep.iterations_owed(4) == 2 * (8 + 28) / (4 + 28)


def test_a_protocol_ends_with_its_results_before_its_time_limit() -> None:
    protocol = TrialProtocol(accumulations=(4, 8), most_iterations=10, time_limit_s=40.0)
    assert protocol.verdict(4, (9.0, *QUIET), elapsed_s=35.9) is ENOUGH
    assert protocol.verdict(4, (9.0, *QUIET), elapsed_s=36.1) is OUT_OF_TIME
    assert protocol.verdict(8, QUIET, elapsed_s=36.1) is ENOUGH
    assert "what comes after GAS 4" in protocol.ended_early(OUT_OF_TIME, 4)
    assert protocol.ended_early(ENOUGH, 4) == ""


def test_a_protocol_warms_up_once_at_the_smallest_accumulation() -> None:
    protocol = TrialProtocol(accumulations=(4, 8), warmup_iterations=2)
    assert (protocol.values, protocol.warmup_at(4), protocol.warmup_at(8)) == ((4, 8), 2, 0)
    confirming = replace(protocol, accumulations=(64,), warmup_accumulation=4)
    assert (confirming.values, confirming.warmup_at(4), confirming.warmup_at(64)) == ((4, 64), 2, 0)
    assert confirming.verdict(4, (1.0,), elapsed_s=0.0) is GO_ON
    assert confirming.verdict(4, (1.0, 5.0), elapsed_s=0.0) is ENOUGH
    assert replace(confirming, warmup_iterations=0).values == (64,)


def test_a_protocol_without_a_most_measures_a_fixed_number() -> None:
    fixed = TrialProtocol(accumulations=(4,), measured_iterations=2)
    assert fixed.verdict(4, (9.0, 1.0), elapsed_s=0.0) is GO_ON
    assert fixed.verdict(4, (9.0, 1.0, 2.0), elapsed_s=0.0) is ENOUGH
    assert not fixed.adaptive


def test_each_accumulation_has_its_own_limit() -> None:
    protocol = TrialProtocol(accumulations=(4, 8), give_up_above_s=(1.0, 2.0))
    assert protocol.verdict(4, (9.0, 1.5, 1.5), elapsed_s=0.0) is GIVE_UP
    assert protocol.verdict(8, (1.5, 1.5), elapsed_s=0.0) is GO_ON
    assert protocol.adaptive


@pytest.mark.parametrize(
    "module",
    [
        *(stopping_rule, start_watch, figures, expression),
        *(rank_process, readers, local_ranks),
    ],
)
def test_modules_sent_to_nodes_need_no_package_and_no_new_python(module: object) -> None:
    tree = ast.parse(getsource(module), feature_version=(3, 8))  # type: ignore[arg-type]
    for typed in (n for n in ast.walk(tree) if isinstance(n, ast.If)):
        if ast.unparse(typed.test) == "TYPE_CHECKING":  # it is false where it runs
            typed.body = [ast.Pass()]
    imported = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    imported += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    others = {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names}
    assert others <= {
        "evaluators.stopping_rule",
        "evaluators.adapter.expression",
        "evaluators.adapter.figures",
        "evaluators.adapter.rank_process",
        "evaluators.adapter.readers",
    }
