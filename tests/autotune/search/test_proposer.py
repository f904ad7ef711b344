"""What a campaign may count on: legal, new, small enough, reproducible, and an end."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.cost_model import estimate
from autotune.errors import NothingToPropose
from autotune.measurement.metrics import measured_iterations
from autotune.schemas.choices import Objective
from autotune.search import CampaignBelief, Proposer, SearchTrial, TrialCost, reason_to_be_content
from autotune.search.evidence import suspected
from autotune.search.layouts import Layouts
from search_spaces.catalog import load_machine, load_model
from search_spaces.errors import InvalidInput
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from tests.autotune import records
from tests.autotune.search.scene import (
    crashed,
    layouts_of,
    ok,
    oom,
    running,
    small_space,
    space_22b,
    space_table_v,
)


def proposer(
    space: SearchSpace, *, seed: int = 7, objective: Objective = "tokens_per_s"
) -> Proposer:
    return Proposer(space, objective=objective, seed=seed)


def keys(strategies: Iterable[Strategy]) -> set[object]:
    return {strategy.layout_key() for strategy in strategies}


def proposed(
    subject: Proposer, seen: Sequence[SearchTrial], *, count: int = 1, free_nodes: int = 9
) -> list[Strategy]:
    return [p.strategy for p in subject.propose(seen, count=count, free_nodes=free_nodes)]


def some(space: SearchSpace, count: int, *, seed: int = 0) -> list[Strategy]:
    lattice = layouts_of(space).lattice
    rows = np.random.default_rng(seed).choice(len(lattice), count, replace=False)
    return [lattice.strategy(int(row)) for row in rows]


def mixed(space: SearchSpace, count: int, *, seed: int = 0) -> list[SearchTrial]:
    """Trials as they come: ok where predicted to fit (within 20 %), out of memory elsewhere."""
    noise = np.random.default_rng(seed).lognormal(0.0, 0.1, count)
    layouts = layouts_of(space)
    return [
        ok(space, s, factor=float(f))
        if layouts.memory_gib[layouts.row_of(s)] <= layouts.memory_limit_gib
        else oom(s)
        for s, f in zip(some(space, count, seed=seed), noise, strict=True)
    ]


def test_a_batch_has_no_twins_and_nothing_observed() -> None:
    space = space_table_v()
    seen = [*mixed(space, 20), *running(some(space, 5, seed=3))]
    batch = proposed(proposer(space), seen, count=3, free_nodes=1000)
    assert len(keys(batch)) == 3
    assert not keys(batch) & keys([o.strategy for o in seen])


def test_a_twin_of_an_observed_strategy_is_not_proposed() -> None:
    space = space_table_v()
    first = proposed(proposer(space), [], count=1, free_nodes=16)[0]
    other_gas = 5 if first.gradient_accumulation_steps == 10 else 10
    seen = [ok(space, first.with_accumulation(other_gas))]
    again = proposed(proposer(space), seen, count=3, free_nodes=1000)
    assert first.layout_key() not in keys(again)


def test_a_refused_layout_teaches_nothing_and_never_returns() -> None:
    space = space_22b()
    seen = mixed(space, 6)
    first, second = proposed(proposer(space), seen, count=1, free_nodes=9) + some(space, 1, seed=9)
    elsewhere = SearchTrial(strategy=second, state="refused")
    assert proposed(proposer(space), [*seen, elsewhere], count=1, free_nodes=9) == [first]
    refused = SearchTrial(strategy=first, state="refused")
    again = proposed(proposer(space), [*seen, refused], count=1, free_nodes=9)
    assert first.layout_key() not in keys(again)


@pytest.mark.parametrize("free_nodes", [1, 3, 7])
def test_a_batch_holds_no_more_nodes_than_are_free(free_nodes: int) -> None:
    batch = proposed(proposer(space_22b()), [], count=9, free_nodes=free_nodes)
    assert batch
    assert sum(strategy.num_nodes for strategy in batch) <= free_nodes
    assert proposed(proposer(space_22b()), [], count=0, free_nodes=free_nodes) == []
    assert proposed(proposer(space_22b()), [], count=3, free_nodes=0) == []


def test_running_and_ended_trials_change_the_next_proposal() -> None:
    space = space_22b()
    seen = mixed(space, 6)
    subject = proposer(space)
    alone = proposed(subject, seen, count=1, free_nodes=9)
    beside = proposed(subject, [*seen, *running(alone)], count=1, free_nodes=9)
    together = proposed(subject, seen, count=2, free_nodes=9)
    assert beside != alone
    assert together == alone + beside  # a batch is what one after the other would be


@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(count=st.integers(0, 25), seed=st.integers(0, 2**32 - 1), shuffle=st.randoms())
def test_proposals_depend_on_seed_and_rows_alone(
    count: int, seed: int, shuffle: random.Random
) -> None:
    space = space_22b()
    seen = [*mixed(space, count, seed=1), *running(some(space, 2, seed=2))]
    expected = proposed(proposer(space, seed=seed), seen, count=2, free_nodes=8)
    shuffle.shuffle(seen)
    assert proposed(proposer(space, seed=seed), seen, count=2, free_nodes=8) == expected


def test_confirmations_of_one_layout_are_one_observation() -> None:
    space = space_22b()
    seen = mixed(space, 10)
    once = next(o for o in seen if o.state == "ok")
    subject = proposer(space)
    expected = proposed(subject, seen, count=1, free_nodes=8)
    assert proposed(subject, [*seen, once, once], count=1, free_nodes=8) == expected


def test_an_exhausted_space_says_so_after_every_layout() -> None:
    """TP and MBS differ: a mix-up of DeepHyper's columns would give a layout that is not here."""
    space = small_space(tensor_parallel=[1, 2, 4], micro_batch_size=[8, 16, 32])
    subject = proposer(space)
    seen: list[SearchTrial] = []
    for _ in range(9):
        seen.append(ok(space, proposed(subject, seen, count=1, free_nodes=1)[0]))
    tried = {(o.strategy.tensor_parallel, o.strategy.micro_batch_size) for o in seen}
    assert tried == {(t, b) for t in (1, 2, 4) for b in (8, 16, 32)}
    with pytest.raises(NothingToPropose, match="all 9 layouts"):
        proposed(subject, seen, count=1, free_nodes=1)


def test_a_batch_ends_early_where_the_space_does() -> None:
    for tensor_parallel, found in (([1, 2], 2), ([1], 1)):
        space = small_space(tensor_parallel=tensor_parallel, micro_batch_size=[1])
        assert len(keys(proposed(proposer(space), [], count=5, free_nodes=10))) == found
    empty = small_space(tensor_parallel=[5], micro_batch_size=[1])
    with pytest.raises(NothingToPropose):
        proposed(proposer(empty), [], count=1, free_nodes=1)


def nothing_fits() -> SearchSpace:
    """175B on one node: legal layouts, none predicted to fit."""
    base = space_table_v()
    return SearchSpace.build(
        base.transformer,
        base.machine,
        nodes=1,
        choices={"gradient_accumulation_steps": 16, "micro_batch_size": [1, 2]},
    )


def test_objectives_are_rates() -> None:
    """The rate over all GPUs, for each node-hour, and for each joule."""
    space = space_22b()
    whole = layouts_of(space)
    objectives: tuple[tuple[Objective, float], ...] = (
        ("tokens_per_s_per_gpu", 1 / 8),
        ("tokens_per_node_hour", 3600),
    )
    for objective, factor in objectives:
        layouts = Layouts.of(space, objective=objective)
        rows = np.array([whole.row_of(each) for each in layouts.lattice], dtype=np.int64)
        expected = whole.log_rate[rows] + np.log(factor / layouts.lattice["num_nodes"])
        np.testing.assert_allclose(layouts.log_rate, expected)
    by_joule = Layouts.of(space, objective="tokens_per_joule")
    predicted = estimate(space.transformer, space.machine, by_joule.lattice)
    assert predicted.energy_joule is not None
    tokens = by_joule.lattice.global_batch_size * space.transformer.seq_length
    np.testing.assert_allclose(np.exp(by_joule.log_rate), tokens / predicted.energy_joule)


def test_energy_is_no_objective_where_power_is_not_known() -> None:
    space = space_22b()
    unknown = replace(space, machine=replace(space.machine, host_watt=None))
    with pytest.raises(InvalidInput, match="host_watt"):
        proposer(unknown, objective="tokens_per_joule")


def test_a_very_large_space_is_offered_in_part() -> None:
    base = space_22b()
    space = SearchSpace.build(
        base.transformer,
        base.machine,
        nodes=32,
        choices={
            "activation_checkpointing": ["none", "selective", "full"],
            "sequence_parallel": [False, True],
        },
    )
    assert len(layouts_of(space)) > 5000
    subject = proposer(space)
    batch = proposed(subject, mixed(space, 12), count=2, free_nodes=1000)
    assert len(keys(batch)) == 2


def test_one_row_stands_for_twins_unless_they_need_less_memory() -> None:
    """Of GAS 5 and 10 the better one, twice where a pipeline is longer than 5."""
    space = space_table_v()
    layouts, lattice = layouts_of(space), space.lattice()
    predicted = estimate(space.transformer, space.machine, lattice)
    rates = lattice.global_batch_size / predicted.iteration_time_s
    best: dict[object, tuple[float, Strategy]] = {}
    for row, strategy in enumerate(lattice):
        gas, stages = strategy.gradient_accumulation_steps, strategy.pipeline_parallel
        key = (strategy.layout_key(), min(gas, stages))
        best[key] = max(best.get(key, (0.0, strategy)), (float(rates[row]), strategy))
    expected = sorted(best.values(), key=lambda pair: -pair[0])
    assert {strategy for _, strategy in expected} == set(layouts.lattice)
    assert layouts.lattice.strategy(0) == expected[0][1]


def test_the_first_trial_is_fast_and_likely_to_fit() -> None:
    first = proposer(space_22b()).propose([], count=1, free_nodes=64)[0]
    layouts = layouts_of(space_22b())
    fitting = layouts.log_rate[layouts.memory_gib <= layouts.memory_limit_gib]
    row = layouts.row_of(first.strategy)
    assert row is not None
    assert layouts.log_rate[row] > np.quantile(fitting, 0.9)
    assert first.expected.fit_probability > 0.5
    assert first.expected.best_so_far is None


def test_where_nothing_probably_fits_the_likeliest_is_first() -> None:
    space = SearchSpace.build(
        load_model("qwen3-30b-a3b"), load_machine("frontier"), nodes=1, choices={}
    )
    first, second = Proposer(space, objective="tokens_per_s", seed=0).propose(
        [], count=2, free_nodes=2
    )
    chances = [each.expected.fit_probability for each in (first, second)]
    assert 0.5 > chances[0] >= chances[1]


def test_a_proposal_says_what_is_expected_of_its_trial() -> None:
    space = space_22b()
    seen = mixed(space, 8)
    proposal = proposer(space).propose(seen, count=1, free_nodes=4)[0]
    low, high = proposal.expected.iteration_time_low_s, proposal.expected.iteration_time_high_s
    assert low < proposal.iteration_time_s < high
    assert proposal.expected.best_so_far == pytest.approx(
        max(
            s.strategy.global_batch_size(8) * space.transformer.seq_length / s.iteration_time_s
            for s in seen
            if s.iteration_time_s is not None
        )
    )
    assert 0.0 < (proposal.expected.probability_better or 0.0) < 1.0
    steps = 8 * proposal.iteration_time_s + 60.0
    assert 0.0 < proposal.expected.node_hours < proposal.strategy.num_nodes * steps / 3600.0 * 4.0


def test_a_foreign_strategy_has_the_expectations_of_a_proposal() -> None:
    space = space_22b()
    subject, seen = proposer(space), mixed(space, 8)
    proposal = subject.propose(seen, count=1, free_nodes=4)[0]
    foreign = replace(proposal.strategy, activation_checkpointing="selective")
    same, other = subject.expect([proposal.strategy, foreign], seen)
    assert (same.running, same.expected_saving) == (proposal.running, None)
    found, expected = (
        {**vars(each.expected), "s": each.iteration_time_s, "gib": each.memory_gib}
        for each in (same, proposal)
    )
    assert found == pytest.approx(expected)
    assert layouts_of(space).row_of(foreign) is None
    assert other.memory_gib != same.memory_gib
    assert other.expected.best_so_far == same.expected.best_so_far
    [first] = subject.expect([foreign], [])
    assert (first.expected.best_so_far, first.expected.probability_better) == (None, None)
    assert subject.expect([], seen) == []


def test_a_measured_strategy_is_expected_again_at_its_own_gas() -> None:
    space = space_22b()
    seen = mixed(space, 8)
    known = next(trial for trial in seen if trial.state == "ok")
    [again] = proposer(space).expect([known.strategy], seen, at_own_accumulation=True)
    assert (
        again.expected.iteration_time_low_s
        < (known.iteration_time_s or 0)
        < again.expected.iteration_time_high_s
    )
    cost, own_s = TrialCost(), again.iteration_time_s
    [count] = measured_iterations(np.array([own_s]), least=cost.measured_iterations)
    least_s = count * own_s
    most_s = (cost.warmup_iterations + count) * own_s
    nodes = known.strategy.num_nodes
    least, most = (nodes * (cost.start_up_s + s) / 3600 for s in (least_s, most_s))
    assert least < again.expected.node_hours <= most


def test_smaller_twins_stay_open_if_a_larger_runs_out_of_memory() -> None:
    space = space_table_v()
    layouts = layouts_of(space)
    large = next(
        s
        for s in layouts.lattice
        if s.pipeline_parallel == 16 and s.gradient_accumulation_steps == 10
    )
    small = layouts.row_of(large.with_accumulation(5))
    row = layouts.row_of(large)
    assert row is not None
    assert small is not None
    assert small != row
    assert layouts.covered_by(row)[small]
    assert not layouts.covered_by(small)[row]


def test_trials_outside_the_space_teach() -> None:
    """A baseline need not lie in it; here all that ran was half as fast as predicted."""
    space = space_22b()
    seen = mixed(space, 6)
    stranger = records.strategy(tp=8, pp=1, gas=128, nodes=4, activation_checkpointing="selective")
    subject = proposer(space)
    without = subject.propose(seen, count=1, free_nodes=4)[0]
    slow = ok(space, stranger, factor=0.5)
    failed = crashed(replace(stranger, tensor_parallel=7))
    taught = subject.propose([*seen, slow, failed], count=1, free_nodes=4)[0]
    assert taught.iteration_time_s != without.iteration_time_s


def test_what_other_campaigns_have_shown_is_believed() -> None:
    """A machine slower than believed: known before its first trial of another model."""
    space = space_22b()
    other = small_space(tensor_parallel=[1, 2, 4], micro_batch_size=[1, 2, 4, 8])
    trials = [ok(other, strategy, factor=0.8) for strategy in other.lattice()]
    earlier = [trial.observation(other.transformer) for trial in trials]
    fresh, warm = (
        Proposer(
            space,
            objective="tokens_per_s",
            seed=1,
            belief=CampaignBelief.over(space, earlier=known),
        ).propose([], count=1, free_nodes=4)[0]
        for known in ([], [o for o in earlier if o is not None])
    )
    believed = [
        p.iteration_time_s
        / estimate(
            space.transformer, space.machine, Lattice.of([p.strategy], gpus_per_node=8)
        ).iteration_time_s[0]
        for p in (fresh, warm)
    ]
    assert believed[1] > 1.03 * believed[0]
    width = [
        math.log(p.expected.iteration_time_high_s / p.expected.iteration_time_low_s)
        for p in (fresh, warm)
    ]
    assert width[1] < 0.8 * width[0]


def test_where_nothing_fits_the_search_ends_after_a_few_trials() -> None:
    space, subject = nothing_fits(), proposer(nothing_fits())
    seen: list[SearchTrial] = []

    def search_to_the_end() -> None:
        for _ in range(10):
            seen.append(oom(proposed(subject, seen)[0]))

    with pytest.raises(NothingToPropose, match="no layout is likely to fit"):
        search_to_the_end()
    assert 2 <= len(seen) < len(layouts_of(space))


def test_a_layout_without_memory_headroom_is_hardly_tried() -> None:
    """Half of the GPU is to stay free: what is tried leaves it, or almost."""
    space = space_22b()
    half = space.machine.memory_gib / 2
    bounded = Proposer(space, objective="tokens_per_s", seed=7, headroom_gib=half)
    peaks = {}
    for name, subject in (("free", proposer(space)), ("bounded", bounded)):
        seen: list[SearchTrial] = []
        for _ in range(2):
            seen.append(ok(space, proposed(subject, seen)[0]))
        peaks[name] = [trial.peak_memory_gib or 0.0 for trial in seen]
    assert max(peaks["bounded"]) < 1.15 * half
    assert max(peaks["free"]) > 1.2 * half
    full = max((s for s in layouts_of(space).lattice), key=lambda s: peak_of(space, s))
    beyond = ok(space, full, factor=100.0)
    best = bounded.propose([*seen, beyond], count=1, free_nodes=9)[0].expected.best_so_far
    assert best == bounded.propose(seen, count=1, free_nodes=9)[0].expected.best_so_far
    free = proposer(space).propose([*seen, beyond], count=1, free_nodes=9)[0].expected.best_so_far
    assert best
    assert free
    assert free > 10 * best


def peak_of(space: SearchSpace, strategy: Strategy) -> float:
    return ok(space, strategy).peak_memory_gib or 0.0


def test_a_promising_layout_is_tried_against_the_memory_formula() -> None:
    """All fit, and the larger the micro-batch the faster; the largest is predicted to need a third
    more than there is."""
    space = small_space(tensor_parallel=[1, 2], micro_batch_size=[8, 16, 32, 40, 48])
    layouts = layouts_of(space)
    largest = layouts.memory_gib.max() / layouts.memory_limit_gib
    assert 1.25 < largest < 1.45
    subject, seen = proposer(space), list[SearchTrial]()
    for _ in range(8):
        [strategy] = proposed(subject, seen)
        trial = ok(space, strategy, factor=1.0 + strategy.micro_batch_size / 16)
        seen.append(replace(trial, peak_memory_gib=None))
        if (strategy.tensor_parallel, strategy.micro_batch_size) == (1, 48):
            return
    pytest.fail("the fastest was not tried within 8 trials")


def test_a_search_ends_when_no_untried_layout_is_worth_the_risk() -> None:
    """What is left needs twice the memory and more, and promises nothing."""
    space = small_space(tensor_parallel=[1], micro_batch_size=[1, 2, 128, 256])
    lattice = layouts_of(space).lattice
    seen = [ok(space, strategy) for strategy in lattice if strategy.micro_batch_size <= 2]
    assert proposed(proposer(space), seen[:1]) == [seen[1].strategy]
    with pytest.raises(NothingToPropose, match="2 of the space's 4 layouts were tried"):
        proposed(proposer(space), seen)


def test_evidence_decides_how_far_formulas_are_trusted() -> None:
    """Truth: the slower the cost model says, the faster. The best is found all the same."""
    space = small_space(tensor_parallel=[1, 2, 4, 8], micro_batch_size=[1, 2, 3, 4, 6, 8])
    layouts = layouts_of(space)
    truth = np.exp(-2.0 * layouts.log_rate + 3.0 * layouts.log_rate.mean())
    best = int(np.argmax(truth))
    subject, seen = proposer(space), list[SearchTrial]()
    for _ in range(14):
        strategy = proposed(subject, seen)[0]
        row = layouts.row_of(strategy)
        assert row is not None
        if row == best:
            return
        seconds = math.exp(layouts.log_work[row]) / float(truth[row])
        seen.append(SearchTrial(strategy=strategy, state="ok", iteration_time_s=seconds))
    pytest.fail("the best of 24 layouts was not found in 14 trials")


def test_a_repeated_cause_is_ascribed_to_what_its_layouts_share() -> None:
    """Whatever has no pipeline crashes: after two crashes other layouts come first."""
    space = space_22b()
    lattice = layouts_of(space).lattice
    without = [s for s in lattice if s.pipeline_parallel == 1][:40:20]
    seen = [crashed(s, cause=f"rank {n}: no such file") for n, s in enumerate(without)]
    assert all(s.pipeline_parallel > 1 for s in proposed(proposer(space), seen, count=3))
    innocent = next(s for s in lattice if s.pipeline_parallel == 1 and s.tensor_parallel == 8)
    row = list(lattice).index(without[0])
    before, after = (
        suspected(lattice, trials)[row] for trials in (seen, [*seen, ok(space, innocent)])
    )
    assert after < before


def test_the_outlook_brightens_with_what_is_measured() -> None:
    space = small_space(tensor_parallel=[1, 2, 4, 8], micro_batch_size=[1, 2, 4, 8])
    subject, seen = proposer(space), list[SearchTrial]()
    assert subject.outlook(seen) is None
    outlooks = []
    for _ in range(12):
        seen.append(ok(space, proposed(subject, seen)[0]))
        outlooks.append(subject.outlook(seen))
    first, last = outlooks[0], outlooks[-1]
    assert first is not None
    assert last is not None
    assert last.probability_better < 0.05 < first.probability_better
    assert last.expected_gain < first.expected_gain
    assert reason_to_be_content(first, objective="tokens_per_s") is None
    assert "another layout is 1 % faster" in (
        reason_to_be_content(last, objective="tokens_per_s") or ""
    )
    energy = reason_to_be_content(last, objective="tokens_per_joule") or ""
    assert energy.endswith("another layout is 1 % better in tokens per joule.")
