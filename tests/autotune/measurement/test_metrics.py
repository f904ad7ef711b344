"""What a trial's seconds come to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.measurement.metrics import (
    LEAST_PROBE,
    AccumulationLaw,
    AccumulationMeasurement,
    accumulations,
    least_iteration_s,
    metrics,
    probe_accumulations,
)
from search_spaces.catalog import load_model
from search_spaces.strategy import Strategy
from tests.autotune import records
from tests.autotune.records import MACHINE, MODEL


def strategy(*, pp: int = 8, gas: int = 80, **others: Any) -> Strategy:
    return records.strategy(tp=1, pp=pp, gas=gas, **others)


def measured(gas: int, *seconds: float) -> AccumulationMeasurement:
    return AccumulationMeasurement(gradient_accumulation_steps=gas, iteration_times_s=seconds)


def test_the_median_stands_and_the_spread_leaves_the_tails_out() -> None:
    one = measured(8, 1.0, 1.1, 1.2, 1.3, 1.4, 9.0)
    assert one.iteration_time_s == pytest.approx(1.25)
    assert measured(8, 1.0, 2.0, 3.0).spread_s == pytest.approx(0.8)
    assert measured(8, 1.0).spread_s == 0.0


@given(
    fixed=st.floats(0.0, 10.0),
    bubble_share=st.floats(0.01, 1.0),
    slope=st.floats(0.01, 10.0),
    wanted=st.integers(1, 1000),
)
def test_two_measurements_give_the_line(
    fixed: float, bubble_share: float, slope: float, wanted: int
) -> None:
    """A pipeline of 8 stages fills and drains in 7 micro-batches, whose time is a share of that in
    the steady state where the ends of the pipeline do more than its middle."""

    def seconds(gas: int) -> float:
        return fixed + (gas + 7 * bubble_share) * slope

    law = AccumulationLaw.fit(strategy(), [measured(gas, seconds(gas)) for gas in (8, 16)])
    expected = seconds(wanted)
    assert law.iteration_time_s(wanted) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", ["gpt-22b", "qwen3-0.6b", "gpt-oss-20b", "deepseek-v3"])
def test_no_iteration_is_shorter_than_its_products_at_the_peak(name: str) -> None:
    """Of the scores at most half are masked, in heads as wide as they are."""
    model, one = load_model(name), strategy(pp=1, gas=2)
    least = least_iteration_s(model, MACHINE, one, accumulation=2)
    batch, gpus = one.global_batch_size(8), one.world_size(8)
    counted = least * gpus * 1e12 * (MACHINE.peak_tflops or 0.0)
    all_scores = 3 * model.score_flops_per_token * batch * model.seq_length
    assert counted == pytest.approx(model.model_flops(batch) - all_scores / 2)


def test_one_measured_gas_means_micro_batches_and_no_fixed_part() -> None:
    """A trial that was given up at its first GAS; a larger one promises least that way."""
    law = AccumulationLaw.fit(strategy(), [measured(8, 1.4, 1.5, 1.6)])
    assert law.fixed_s == 0.0
    assert law.micro_batch_s == pytest.approx(0.1)
    assert law.iteration_time_s(80) == pytest.approx(8.7)
    assert law.spread_s(80) == pytest.approx(0.08 * 8.7 / 1.5)


def test_nothing_measured_gives_no_line() -> None:
    with pytest.raises(ValueError, match="needs a measurement"):
        AccumulationLaw.fit(strategy(), [])


@given(pp=st.sampled_from([1, 2, 3, 4, 8, 16]), gas=st.integers(1, 512))
def test_a_trial_runs_no_more_micro_batches_than_its_strategy(pp: int, gas: int) -> None:
    probes = probe_accumulations(strategy(pp=pp, gas=gas))
    assert list(probes) == sorted(set(probes))
    assert max(probes) <= min(gas, 2 * max(pp, LEAST_PROBE))
    assert {min(probe, pp) for probe in probes} == {min(gas, pp)}
    assert len(probes) == (2 if gas > pp else 1)


@pytest.mark.parametrize(
    ("pp", "gas", "probes"),
    [
        (16, 5, (5,)),
        (16, 16, (16,)),
        (16, 20, (16, 20)),
        (16, 100, (16, 32)),
        (1, 1, (1,)),
        (1, 2, (1, 2)),
        (1, 4, (2, 4)),
        (1, 7, (4, 7)),
        (2, 3, (2, 3)),
        (2, 100, (4, 8)),
    ],
)
def test_the_probes_of_short_and_long_pipelines(pp: int, gas: int, probes: tuple[int, ...]) -> None:
    assert probe_accumulations(strategy(pp=pp, gas=gas)) == probes


@given(pp=st.integers(3, 20), groups=st.integers(1, 40))
def test_an_interleaved_pipeline_is_probed_at_stage_multiples(pp: int, groups: int) -> None:
    wanted = strategy(pp=pp, gas=pp * groups)
    interleaved = replace(wanted, virtual_stages=2)
    probes = probe_accumulations(interleaved)
    assert len(probes) == (2 if groups > 1 else 1)
    assert all(probe % pp == 0 for probe in probes)
    assert max(probes) <= pp * groups


def test_figures_of_the_studys_22b_setting() -> None:
    """22B at 38.38 % of peak (hardware FLOPs): 640 samples on 16 GCDs."""
    subject = strategy(gas=320)
    batch = subject.global_batch_size(8)
    assert batch == 640
    seconds = MODEL.hardware_flops(batch, "full") / (0.3838 * 191.5e12 * 16)
    figures = metrics(MODEL, MACHINE, subject, [measured(320, seconds)], peak_memory_gib=50.0)
    assert figures.measured
    assert figures.hfu == pytest.approx(0.3838)
    assert figures.mfu == pytest.approx(0.3838 * 3 / 4, rel=0.02)
    assert figures.tokens_per_s == pytest.approx(640 * 2048 / seconds)
    assert figures.tokens_per_s_per_gpu == pytest.approx(figures.tokens_per_s / 16)
    assert figures.peak_memory_gib == 50.0


def test_interleaved_stages_shorten_the_bubble() -> None:
    interleaved = strategy(virtual_stages=7)
    law = AccumulationLaw.fit(interleaved, [measured(8, 9.5), measured(16, 17.5)])
    assert law.bubble == 1.0
    assert law.fixed_s == pytest.approx(0.5)
    assert law.micro_batch_s == pytest.approx(1.0)


@pytest.mark.parametrize("later", [0.9, 4.0])
def test_a_line_that_physics_excludes_goes_through_the_origin(later: float) -> None:
    """More micro-batches in less time, or a bubble that saves time: that is noise."""
    law = AccumulationLaw.fit(strategy(), [measured(8, 1.0), measured(16, later)])
    assert law.fixed_s == 0.0
    assert law.micro_batch_s == pytest.approx((15 * 1.0 + 23 * later) / (15**2 + 23**2))


def test_an_unmeasured_accumulation_follows_by_the_law() -> None:
    figures = metrics(
        MODEL, MACHINE, strategy(gas=80), [measured(8, 1.7), measured(16, 2.3, 2.5, 2.7)]
    )
    assert not figures.measured
    assert figures.iteration_time_s == pytest.approx(0.2 + 87 * 0.1)


def test_the_spread_grows_with_the_distance_from_measurements() -> None:
    spreads = [
        metrics(
            MODEL,
            MACHINE,
            strategy(gas=gas),
            [measured(8, 1.6, 1.7, 1.8), measured(16, 2.3, 2.5, 2.7)],
        ).iteration_time_spread_s
        for gas in (12, 16, 32, 80)
    ]
    assert spreads == sorted(spreads)
    assert spreads[1] == pytest.approx(0.16)
    assert spreads[2] == pytest.approx(((3 * 0.16) ** 2 + (2 * 0.08) ** 2) ** 0.5)


def test_nothing_measured_has_no_figures() -> None:
    with pytest.raises(ValueError, match="needs a measurement"):
        metrics(MODEL, MACHINE, strategy(gas=80), [])


def test_the_curve_marks_what_was_measured() -> None:
    times = accumulations(
        MODEL, MACHINE, strategy(gas=12), [measured(8, 1.6, 1.7, 1.8), measured(16, 2.5)]
    )
    assert [one.gradient_accumulation_steps for one in times] == [1, 2, 4, 8, 12, 16]
    by_gas = {one.gradient_accumulation_steps: one for one in times}
    assert by_gas[8].measured
    assert by_gas[8].iteration_times_s == [1.6, 1.7, 1.8]
    assert not by_gas[12].measured
    assert by_gas[12].iteration_times_s == []
    assert by_gas[12].iteration_time_s == pytest.approx(2.1)
    assert by_gas[12].global_batch_size == 24
    assert by_gas[12].tokens_per_s == pytest.approx(24 * 2048 / 2.1)


def test_one_measured_value_is_shown_alone_and_none_is_nothing() -> None:
    times = accumulations(MODEL, MACHINE, strategy(gas=80), [measured(80, 4.0)])
    assert [(one.gradient_accumulation_steps, one.measured) for one in times] == [(80, True)]
    assert accumulations(MODEL, MACHINE, strategy(), []) == []
