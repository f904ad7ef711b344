"""From trials in any order to the strategy to train with."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.cost_model import training_energy_joule
from autotune.measurement import AccumulationMeasurement, metrics
from autotune.recommendation import recommend, strategies_to_confirm
from autotune.resolution import machine_shape, model_shape, strategy_shape
from autotune.schemas import (
    Accumulation,
    Campaign,
    CampaignCreate,
    CampaignState,
    Objective,
    ProtocolSpec,
    Recommendation,
    Trial,
    TrialMetrics,
    TrialState,
)
from search_spaces.catalog import load_machine, load_model
from search_spaces.strategy import Strategy

MODEL = load_model("gpt-22b")
MACHINE = load_machine("frontier")
NOW = datetime(2026, 5, 1, tzinfo=UTC)


def strategy(
    *, tp: int = 2, pp: int = 4, mbs: int = 1, gas: int | None = None, nodes: int = 2
) -> Strategy:
    """Of a global batch of 64 samples where no GAS is given."""
    replicas = nodes * 8 // (tp * pp)
    return Strategy(
        tensor_parallel=tp,
        pipeline_parallel=pp,
        micro_batch_size=mbs,
        gradient_accumulation_steps=gas or 64 // (mbs * replicas),
        zero_stage=1,
        num_nodes=nodes,
    )


def campaign(
    *,
    state: CampaignState = CampaignState.DONE,
    confirmations: int = 3,
    objective: Objective = "tokens_per_s",
    simulated: bool = False,
    tokens: float = 1e9,
    **changes: Any,
) -> Campaign:
    request = CampaignCreate(
        model="gpt-22b",
        machine="frontier",
        nodes=4,
        evaluator="simulated",
        objective=objective,
        protocol=ProtocolSpec(confirmations=confirmations),
        tokens=tokens,
    )
    fields: dict[str, Any] = {
        "id": 1,
        "name": "",
        "state": state,
        "reason": "",
        "simulated": simulated,
        "request": request,
        "model": model_shape(MODEL),
        "machine": machine_shape(MACHINE),
        "created_at": NOW,
        "started_at": NOW,
        "finished_at": None,
        "trials": 0,
        "pending": 0,
        "failures": 0,
        "confirmations": 0,
        "node_hours": 0.0,
    }
    return Campaign(**fields | changes)


def trial(
    number: int,
    subject: Strategy,
    *,
    seconds: float | None = None,
    spread: float = 0.0,
    purpose: Literal["search", "confirmation"] = "search",
    state: TrialState = TrialState.OK,
    peak: float | None = 40.0,
    probes: tuple[int, ...] | None = None,
    node_hours: float | None = 0.5,
) -> Trial:
    """One whose iteration takes `seconds` at its own GAS, and a share of it at another.

    Where `probes` are given, its iterations were timed at these, and its figure follows by the law
    (an iteration is micro-batches and bubble alone).
    """
    ok = state is TrialState.OK
    timed = probes or (subject.gradient_accumulation_steps,)
    bubble = subject.pipeline_parallel - 1
    each = (seconds or 0.0) / (subject.gradient_accumulation_steps + bubble)
    measured = [
        AccumulationMeasurement(
            gradient_accumulation_steps=gas,
            iteration_times_s=tuple(each * (gas + bubble) + d for d in (-spread, 0, spread)),
        )
        for gas in timed
    ]
    figures = metrics(MODEL, MACHINE, subject, measured, peak_memory_gib=peak) if ok else None
    shown = [
        Accumulation(
            gradient_accumulation_steps=m.gradient_accumulation_steps,
            global_batch_size=1,
            iteration_time_s=m.iteration_time_s,
            tokens_per_s=1.0,
            measured=True,
            iteration_times_s=list(m.iteration_times_s),
        )
        for m in measured
    ]
    return Trial(
        id=1000 - number,
        campaign_id=1,
        number=number,
        purpose=purpose,
        strategy=strategy_shape(subject),
        token=f"t{number}",
        state=state,
        simulated=False,
        created_at=NOW,
        started_at=NOW,
        finished_at=NOW,
        duration_s=60.0,
        node_hours=node_hours,
        predicted_iteration_time_s=9.9,
        predicted_memory_gib=41.0,
        metrics=None if figures is None else TrialMetrics(**figures.as_dict()),
        accumulations=shown if ok else [],
        peak_memory_gib_by_rank=[],
        error=None if ok else "out of memory",
        log_path=None,
        host=None,
        versions={},
    )


A, B, C, D = strategy(tp=1), strategy(tp=2), strategy(tp=4), strategy(tp=1, pp=8)


def answer(trials: list[Trial], **settings: Any) -> Recommendation:
    found = recommend(campaign(**settings), trials)
    assert found is not None
    return found


# --- which are measured once more ----------------------------------------------------------------


def test_the_fastest_layouts_of_the_search_are_confirmed_first() -> None:
    trials = [trial(i, s, seconds=t) for i, (s, t) in enumerate([(A, 4), (B, 1), (C, 3), (D, 2)])]
    assert strategies_to_confirm(campaign(), trials) == [B, D, C]
    assert strategies_to_confirm(campaign(confirmations=0), trials) == []


def test_nothing_succeeded_nothing_to_confirm() -> None:
    failed = [trial(1, A, state=TrialState.OOM), trial(2, B, state=TrialState.PENDING)]
    assert strategies_to_confirm(campaign(), failed) == []
    assert recommend(campaign(), failed) is None


@pytest.mark.parametrize("state", [TrialState.OK, TrialState.PENDING])
def test_a_confirmation_done_or_under_way_is_not_started_again(state: TrialState) -> None:
    trials = [
        trial(1, A, seconds=1),
        trial(2, B, seconds=2),
        trial(3, A, seconds=1, purpose="confirmation", state=state),
    ]
    assert strategies_to_confirm(campaign(confirmations=1), trials) == []
    assert strategies_to_confirm(campaign(confirmations=2), trials) == [B]


def test_a_confirmation_that_was_withdrawn_from_a_queue_is_started_again() -> None:
    trials = [trial(1, A, seconds=1), trial(2, B, seconds=2)]
    again = trial(3, A, purpose="confirmation", state=TrialState.CANCELLED, node_hours=0.0)
    ended = trial(3, A, purpose="confirmation", state=TrialState.CANCELLED, node_hours=0.1)
    assert strategies_to_confirm(campaign(confirmations=1), [*trials, again]) == [A]
    assert strategies_to_confirm(campaign(confirmations=1), [*trials, ended]) == [B]


def test_the_next_in_line_takes_the_place_of_one_that_failed() -> None:
    trials = [trial(i, s, seconds=i) for i, s in enumerate([A, B, C], start=1)]
    failed = trial(4, A, purpose="confirmation", state=TrialState.OOM)
    assert strategies_to_confirm(campaign(confirmations=1), [*trials, failed]) == [B]
    second = trial(5, B, purpose="confirmation", state=TrialState.CRASHED)
    assert strategies_to_confirm(campaign(confirmations=1), [*trials, failed, second]) == []


def test_one_clearly_above_the_confirmed_is_measured_too_before_one_is_named() -> None:
    trials = [
        trial(1, A, seconds=1.0),
        trial(2, B, seconds=1.2),
        trial(3, A, seconds=9.0, purpose="confirmation"),  # the search's figure was too good
    ]
    assert strategies_to_confirm(campaign(confirmations=1), trials) == [B]
    within_noise = [*trials[:2], trial(3, A, seconds=1.205, purpose="confirmation")]
    assert strategies_to_confirm(campaign(confirmations=1), within_noise) == []


def test_twins_are_confirmed_once_by_the_better() -> None:
    twin = A.with_accumulation(32)
    trials = [trial(1, A, seconds=1.0), trial(2, twin, seconds=1.9)]
    assert strategies_to_confirm(campaign(), trials) == [twin]  # twice the batch in 1.9 times


# --- the ranking ---------------------------------------------------------------------------------


def test_the_published_mistake_is_not_repeated() -> None:
    """A tuner named 23.6 s best where 15.05 s was measured: it sorted by a column's position.

    Here the numbers of the trials, their database ids and the order of the rows all disagree.
    """
    times = [23.6, 40.0, 15.05, 18.2, 31.0]
    layouts = [A, B, C, D, strategy(tp=2, pp=8)]
    trials = [
        trial(number, s, seconds=t)
        for number, s, t in zip([9, 2, 7, 30, 1], layouts, times, strict=True)
    ]
    found = answer(trials)
    assert found.best.trial_numbers == [7]
    assert found.best.metrics.iteration_time_s == pytest.approx(15.05)
    order = [found.best, *found.runners_up]
    assert [one.trial_numbers for one in order] == [[7], [30], [9], [1], [2]]
    assert [one.rank for one in order] == [1, 2, 3, 4, 5]


@settings(max_examples=25, deadline=None)
@given(shuffle=st.randoms(), times=st.lists(st.sampled_from([1.0, 1.5, 2.0]), min_size=6))
def test_the_order_of_the_trials_does_not_matter(
    shuffle: random.Random, times: list[float]
) -> None:
    layouts = [strategy(tp=tp, pp=pp, nodes=4) for tp in (1, 2, 4) for pp in (1, 2, 4, 8)]
    trials = [trial(i, s, seconds=t) for i, (s, t) in enumerate(zip(layouts, times, strict=False))]
    trials.append(trial(50, layouts[0], seconds=1.7, purpose="confirmation"))
    trials.append(trial(51, layouts[1], purpose="confirmation", state=TrialState.OOM))
    expected = answer(trials)
    shuffle.shuffle(trials)
    assert answer(trials) == expected


def test_columns_are_read_by_name() -> None:
    """The same row with its columns in another order is the same row."""
    trials = [trial(1, A, seconds=3), trial(2, B, seconds=2)]
    turned = [Trial(**dict(reversed(list(t.model_dump().items())))) for t in trials]
    assert answer(turned) == answer(trials)


def test_four_distinct_layouts_follow_the_best() -> None:
    layouts = [strategy(tp=tp, pp=pp) for tp in (1, 2, 4) for pp in (1, 2, 4)]
    trials = [trial(i, s, seconds=1 + i) for i, s in enumerate(layouts)]
    trials += [trial(20 + i, s.with_accumulation(128), seconds=9) for i, s in enumerate(layouts)]
    found = answer(trials)
    assert len(found.runners_up) == 4
    shapes = [one.strategy for one in (found.best, *found.runners_up)]
    assert len({(s.tensor_parallel, s.pipeline_parallel) for s in shapes}) == 5


def test_a_confirmed_figure_outranks_a_better_unconfirmed_one() -> None:
    trials = [
        trial(1, A, seconds=1.0),
        trial(2, B, seconds=1.2),
        trial(3, B, seconds=1.2, purpose="confirmation"),
    ]
    found = answer(trials)
    assert found.best.trial_numbers == [2, 3]
    assert found.best.confirmed
    assert not found.runners_up[0].confirmed
    assert found.runners_up[0].relative_to_best == pytest.approx(1.2)
    assert any("unconfirmed layout 20.0% faster" in sentence for sentence in found.caveats)


def test_the_median_of_all_measurements_of_a_strategy_counts() -> None:
    trials = [
        trial(1, A, seconds=1.0),
        trial(2, A, seconds=1.4, purpose="confirmation"),
        trial(3, A, seconds=1.1, purpose="confirmation"),
    ]
    best = answer(trials).best
    assert best.metrics.iteration_time_s == pytest.approx(1.1)
    assert best.metrics.iteration_time_spread_s == pytest.approx(0.2)
    assert best.metrics.tokens_per_s == pytest.approx(best.metrics.global_batch_size * 2048 / 1.1)
    assert best.metrics.mfu == pytest.approx(best.metrics.model_tflops_per_gpu / 191.5)


def test_a_measured_figure_replaces_the_laws() -> None:
    trials = [
        trial(1, A, seconds=1.0, probes=(4, 8)),
        trial(2, A, seconds=1.3, purpose="confirmation"),
    ]
    best = answer(trials).best
    assert best.metrics.measured
    assert best.metrics.iteration_time_s == pytest.approx(1.3)


def test_what_failed_when_measured_once_more_ranks_last() -> None:
    trials = [
        trial(1, A, seconds=1.0),
        trial(2, B, seconds=2.0),
        trial(3, A, purpose="confirmation", state=TrialState.OOM),
    ]
    found = answer(trials)
    assert found.best.trial_numbers == [2]
    assert "trial 1" in " ".join(found.caveats)
    alone = answer([trials[0], trials[2]])
    assert alone.best.trial_numbers == [1]
    assert "failed when it was measured once more" in " ".join(alone.caveats)


def test_a_lost_node_is_not_held_against_a_strategy() -> None:
    trials = [
        trial(1, A, seconds=1.0),
        trial(2, B, seconds=2.0),
        trial(3, A, purpose="confirmation", state=TrialState.NODE_FAIL),
    ]
    assert answer(trials).best.trial_numbers == [1]


def test_the_objective_decides_between_many_and_few_nodes() -> None:
    wide, narrow = strategy(nodes=4), strategy(nodes=1)
    trials = [trial(1, wide, seconds=1.0), trial(2, narrow, seconds=2.0)]
    assert answer(trials).best.trial_numbers == [1]
    assert answer(trials, objective="tokens_per_s_per_gpu").best.trial_numbers == [2]


@pytest.mark.parametrize(
    ("seconds", "spread", "significant"),
    [(1.01, 0.0, False), (1.03, 0.0, True), (1.045, 0.05, False), (1.3, 0.05, True)],
)
def test_a_difference_counts_beyond_both_spreads(
    seconds: float, spread: float, significant: bool
) -> None:
    found = answer([trial(1, A, seconds=1.0, spread=spread), trial(2, B, seconds=seconds)])
    runner_up = found.runners_up[0]
    assert runner_up.significant is significant
    assert found.best.significant is None
    assert any("level with the best" in sentence for sentence in found.caveats) is not significant


def test_headroom_is_what_the_fullest_gpu_has_left() -> None:
    found = answer([trial(1, A, seconds=1.0, peak=50.5), trial(2, B, seconds=2.0, peak=None)])
    assert found.best.memory_headroom_gib == pytest.approx(MACHINE.memory_gib - 50.5)
    assert found.runners_up[0].memory_headroom_gib is None
    assert found.best.predicted_iteration_time_s == 9.9


def test_what_the_gpus_drew_is_the_median_of_the_trials_that_say() -> None:
    drawn = [
        trial(n, A, seconds=1.0).model_copy(update={"joules_per_token": joules})
        for n, joules in enumerate((0.5, None, 0.7, 0.9), start=1)
    ]
    found = answer([*drawn, trial(5, B, seconds=2.0)])
    assert found.best.joules_per_token == pytest.approx(0.7)
    assert found.runners_up[0].joules_per_token is None


# --- what it costs -------------------------------------------------------------------------------


def test_training_takes_whole_iterations_of_the_global_batch() -> None:
    found = answer([trial(1, A, seconds=2.0)], tokens=1e9)
    batch = A.global_batch_size(8)
    assert found.training.iterations == math.ceil(1e9 / (batch * 2048))
    assert found.training.days == pytest.approx(found.training.iterations * 2.0 / 86400)
    assert found.training.node_hours == pytest.approx(found.training.days * 24 * 2)


def test_energy_follows_from_hardware_utilisation() -> None:
    found = answer([trial(1, A, seconds=20.0)])
    hfu = found.best.metrics.hfu
    assert hfu is not None
    assert hfu < 0.6
    seconds = found.training.iterations * 20.0
    joule = training_energy_joule(MACHINE, num_nodes=2, seconds=seconds, utilisation=hfu / 0.6)
    assert joule is not None
    assert found.training.energy_mwh == pytest.approx(joule / 3.6e9)
    capped = answer([trial(1, A, seconds=0.01)]).training
    full = training_energy_joule(
        MACHINE, num_nodes=2, seconds=capped.iterations * 0.01, utilisation=1.0
    )
    assert full is not None
    assert capped.energy_mwh == pytest.approx(full / 3.6e9)


@pytest.mark.parametrize("unknown", ["gpu_max_watt", "host_watt"])
def test_energy_is_not_given_where_power_is_not_known(unknown: str) -> None:
    shape = machine_shape(MACHINE).model_copy(update={unknown: None})
    assert answer([trial(1, A, seconds=1.0)], machine=shape).training.energy_mwh is None


def test_energy_is_not_given_where_utilisation_is_not_known() -> None:
    one = trial(1, A, seconds=1.0)
    assert one.metrics is not None
    unknown = one.model_copy(update={"metrics": one.metrics.model_copy(update={"hfu": None})})
    assert answer([unknown]).training.energy_mwh is None


def test_counts_are_those_of_all_trials() -> None:
    trials = [
        trial(1, A, seconds=1.0),
        trial(2, B, state=TrialState.OOM, node_hours=0.25),
        trial(3, C, state=TrialState.CANCELLED, node_hours=None),
        trial(4, D, state=TrialState.PENDING, node_hours=None),
        trial(5, D, state=TrialState.LOST),
    ]
    found = answer(trials)
    assert (found.trials, found.failures, found.node_hours) == (5, 2, 1.25)


def test_artefacts_are_named() -> None:
    found = recommend(campaign(), [trial(1, A, seconds=1)], artefacts=["launch.sbatch"])
    assert found is not None
    assert found.artefacts == ["launch.sbatch"]


# --- the GAS curve -------------------------------------------------------------------------------


def test_every_power_of_two_follows_from_the_measured_two() -> None:
    subject = A.with_accumulation(24)
    found = answer([trial(1, subject, seconds=2.4, probes=(4, 8))])
    by_gas = {one.gradient_accumulation_steps: one for one in found.accumulations}
    assert list(by_gas) == [1, 2, 4, 8, 16, 24]
    assert [gas for gas, one in by_gas.items() if one.measured] == [4, 8]
    assert by_gas[24].iteration_time_s == pytest.approx(2.4)
    assert by_gas[24].global_batch_size == subject.global_batch_size(8)
    assert by_gas[16].tokens_per_s == pytest.approx(
        by_gas[16].global_batch_size * 2048 / by_gas[16].iteration_time_s
    )


def test_a_confirmation_adds_a_measured_point() -> None:
    trials = [
        trial(1, A, seconds=1.6, probes=(4, 8)),
        trial(2, A, seconds=1.5, purpose="confirmation"),
        trial(3, B, seconds=9.0, probes=(4, 8)),
    ]
    measured = {
        one.gradient_accumulation_steps: one.iteration_time_s
        for one in answer(trials).accumulations
        if one.measured
    }
    assert measured == pytest.approx({4: 1.6 * 7 / 19, 8: 1.6 * 11 / 19, 16: 1.5})


def test_a_stored_prediction_is_not_taken_for_a_measurement() -> None:
    one = trial(1, A, seconds=1.6, probes=(4, 8))
    stored = one.accumulations[0].model_copy(
        update={"gradient_accumulation_steps": 2, "measured": False, "iteration_time_s": 77.0}
    )
    found = answer([one.model_copy(update={"accumulations": [*one.accumulations, stored]})])
    by_gas = {one.gradient_accumulation_steps: one for one in found.accumulations}
    assert not by_gas[2].measured
    assert by_gas[2].iteration_time_s == pytest.approx(1.6 * 5 / 19)


# --- what a reader should know -------------------------------------------------------------------


def said(word: str, trials: list[Trial], **settings: Any) -> bool:
    return any(word in sentence for sentence in answer(trials, **settings).caveats)


def eight() -> list[Trial]:
    layouts = [strategy(tp=tp, pp=pp) for tp in (1, 2) for pp in (1, 2, 4, 8)]
    return [trial(i, s, seconds=1.0 + i) for i, s in enumerate(layouts)]


def test_a_clear_and_confirmed_answer_needs_no_caveat() -> None:
    same_batch = [
        strategy(tp=2, pp=4, mbs=1),
        strategy(tp=2, pp=4, mbs=2),
        *(strategy(tp=tp, pp=8 // tp, mbs=mbs) for tp in (1, 4, 8) for mbs in (1, 2)),
    ]
    trials = [trial(i, s, seconds=1.0 + i) for i, s in enumerate(same_batch)]
    trials.append(trial(20, same_batch[0], seconds=1.01, purpose="confirmation"))
    found = answer(trials)
    assert found.caveats == []
    assert not found.provisional


@pytest.mark.parametrize("state", [CampaignState.RUNNING, CampaignState.PAUSED])
def test_an_unfinished_or_unconfirmed_answer_is_provisional(state: CampaignState) -> None:
    confirmed = [*eight(), trial(20, strategy(tp=1, pp=1), seconds=1.0, purpose="confirmation")]
    assert not answer(confirmed).provisional
    assert answer(confirmed, state=state).provisional
    assert answer(eight()).provisional
    assert said("has not been confirmed", eight())
    assert not said("has not been confirmed", confirmed)


def test_simulated_figures_say_so() -> None:
    assert answer(eight(), simulated=True).simulated
    assert said("Simulated", eight(), simulated=True)
    assert not said("Simulated", eight())


def test_cpu_figures_show_the_plumbing() -> None:
    shape = machine_shape(MACHINE).model_copy(update={"peak_tflops": None, "gpu": "CPU core"})
    assert said("plumbing", eight(), machine=shape)
    assert not said("plumbing", eight())
    assert not said("plumbing", eight(), machine=shape, simulated=True)


def test_few_trials_are_named() -> None:
    assert said("Only 7 search trials have", eight()[:7])
    assert said("Only 1 search trial has", eight()[:1])
    assert not said("Only", eight())


def test_a_law_below_the_pipelines_depth_is_not_to_be_relied_on() -> None:
    shallow = strategy(pp=2, gas=32)
    assert said("within a few per cent", [trial(1, shallow, seconds=1.0, probes=(4, 8))])
    deep = strategy(pp=8, gas=4)
    assert said("below the pipeline's 8 stages", [trial(1, deep, seconds=1.0, probes=(8, 16))])
    assert not said("law", [trial(1, deep, seconds=1.0)])


def test_a_confirmation_that_differs_is_told() -> None:
    more = trial(2, A, seconds=1.4, purpose="confirmation")
    searched = trial(1, A, seconds=1.0, probes=(4, 8))
    assert said("40% more than the 1 s of the search", [searched, more])
    less = trial(2, A, seconds=0.8, purpose="confirmation")
    assert said("20% less than", [searched, less])
    close = trial(2, A, seconds=1.04, purpose="confirmation")
    assert not said("of the search", [searched, close])


def test_the_convergence_guard_names_the_global_batches() -> None:
    trials = [trial(1, A.with_accumulation(8), seconds=1.0), trial(2, B, seconds=9.0)]
    first, second = (t.metrics.global_batch_size for t in trials if t.metrics)
    assert first != second
    sizes = f"with {min(first, second)} to {max(first, second)}"
    assert said(f"global batch of {first} samples", trials)
    assert said(sizes, trials)
    fixed = [trial(1, A, seconds=1.0), trial(2, B, seconds=2.0)]
    assert not said("global batch", fixed)
