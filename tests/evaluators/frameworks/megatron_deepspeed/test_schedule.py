from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.frameworks.megatron_deepspeed.schedule import PlannedRun, trial_runs
from evaluators.trial import TrialProtocol
from search_spaces.catalog import load_machine, load_model
from search_spaces.errors import InvalidInput
from search_spaces.strategy import Strategy
from tests.evaluators.frameworks.readers import megatron_parser, strategy_of
from tests.evaluators.frameworks.strategies import BASE, STRATEGIES, legal_strategies

FRONTIER = load_machine("frontier")
GPT = load_model("gpt-22b")


def runs(
    strategy: Strategy, *accumulations: int, warmup: int = 1, measured: int = 3
) -> list[PlannedRun]:
    protocol = TrialProtocol(
        accumulations=accumulations, warmup_iterations=warmup, measured_iterations=measured
    )
    return trial_runs(GPT, FRONTIER, strategy, protocol)


def words(run: PlannedRun) -> list[str]:
    return [word for argument in run.arguments for word in argument]


def batches(run: PlannedRun) -> list[int]:
    """The batch of each iteration, by the rule of Megatron's `microbatches.py` and `training.py`.

    The batch grows by the increment each time that the ramp's samples, divided by the number of
    increments, have been consumed; the last batch is whole.
    """
    args = megatron_parser().parse_args(words(run))
    if args.rampup_batch_size is None:
        assert args.train_samples is None
        return [args.global_batch_size] * args.train_iters
    assert args.train_iters is None  # Megatron refuses both
    start, increment, ramp = map(int, args.rampup_batch_size)
    steps, rest = divmod(args.global_batch_size - start, increment)
    assert rest == 0
    seen: list[int] = []
    consumed = 0
    while True:
        step = steps if consumed > ramp else int(consumed / (ramp / steps))
        batch = start + step * increment
        if consumed + batch > args.train_samples:
            return seen
        seen.append(batch)
        consumed += batch


@settings(max_examples=50)
@given(
    legal_strategies(),
    st.lists(st.integers(1, 64), min_size=1, max_size=5),
    st.integers(0, 3),
    st.integers(1, 10),
)
def test_megatron_trains_each_gas_for_as_long_as_is_said(
    strategy: Strategy, accumulations: list[int], warmup: int, measured: int
) -> None:
    if strategy.virtual_stages > 1:
        accumulations = [gas * strategy.pipeline_parallel for gas in accumulations]
    found = runs(strategy, *accumulations, warmup=warmup, measured=measured)
    told = [segment for run in found for segment in run.segments]
    assert [s.gradient_accumulation_steps for s in told] == sorted(set(accumulations))
    for run in found:
        trained = [(size, len(list(times))) for size, times in groupby(batches(run))]
        times_ran = [warmup + measured, measured]  # warm-up comes once in each start
        expected = zip((s.global_batch_size for s in run.segments), times_ran, strict=False)
        assert trained == list(expected)
        assert run.iterations == sum(times for _, times in trained)


@settings(max_examples=50)
@given(legal_strategies())
def test_a_run_trains_the_strategy_from_its_smallest_gas(strategy: Strategy) -> None:
    stages = strategy.pipeline_parallel
    (run,) = runs(strategy, 4 * stages, 2 * stages)
    trained = strategy_of(words(run), FRONTIER, num_nodes=strategy.num_nodes)
    assert trained == strategy.with_accumulation(4 * stages)
    assert run.strategy == strategy.with_accumulation(2 * stages)


def test_the_iterations_that_count_are_numbered_as_in_the_log() -> None:
    (run,) = runs(BASE, 4, 8, warmup=2, measured=3)
    assert [list(segment.measured) for segment in run.segments] == [[3, 4, 5], [6, 7, 8]]
    assert [segment.global_batch_size for segment in run.segments] == [16, 32]


def test_the_larger_batch_is_planned_for_the_most_iterations() -> None:
    protocol = TrialProtocol(accumulations=(4, 8), most_iterations=10)
    (run,) = trial_runs(GPT, FRONTIER, BASE, protocol)
    assert [list(segment.measured) for segment in run.segments] == [
        [2, 3, 4],
        [5, 6, 7, 8, 9, 10, 11, 12, 13, 14],
    ]
    assert batches(run) == [16] * 4 + [32] * 10


def test_what_counts_of_a_run_that_was_given_up() -> None:
    (run,) = runs(BASE, 4, 8)
    [small] = run.given_up_after(3).segments
    assert list(small.measured) == [2, 3]
    small, large = run.given_up_after(6).segments
    assert (list(small.measured), list(large.measured)) == ([2, 3, 4], [5, 6])


def test_a_confirmation_runs_its_own_gas_alone() -> None:
    (run,) = runs(BASE, 640, measured=10)
    args = megatron_parser().parse_args(words(run))
    assert (args.train_iters, args.global_batch_size) == (11, 2560)
    assert args.rampup_batch_size is None


def test_a_confirmation_warms_up_with_few_micro_batches() -> None:
    protocol = TrialProtocol(
        accumulations=(640,), warmup_accumulation=4, warmup_iterations=2, most_iterations=10
    )
    (run,) = trial_runs(GPT, FRONTIER, BASE, protocol)
    assert batches(run) == [16] * 2 + [2560] * 10
    assert [list(segment.measured) for segment in run.segments] == [[], list(range(3, 13))]
    assert [segment.least_iterations for segment in run.segments] == [0, 2]


def test_nothing_comes_between_the_iterations() -> None:
    (run,) = runs(BASE, 4, 8)
    args = megatron_parser().parse_args(words(run))
    assert (args.log_interval, args.eval_iters) == (1, 0)
    assert min(args.eval_interval, args.save_interval) > run.iterations
    assert args.save is None
    assert args.lr > 0


def test_interleaving_takes_whole_groups_of_micro_batches() -> None:
    interleaved = STRATEGIES["interleaved"]
    with pytest.raises(InvalidInput, match="multiple of pipeline_parallel"):
        runs(interleaved, 4, 6)
    assert len(runs(interleaved, 4, 8)) == 1
    assert len(runs(replace(interleaved, virtual_stages=1), 4, 6)) == 1
