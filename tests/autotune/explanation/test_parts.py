"""Where time and memory go, and the sentence that says why one is faster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.calibration import general_knowledge
from autotune.explanation.parts import (
    MEMORY_WORDS,
    TIME_PARTS,
    TIME_WORDS,
    ComparedStrategy,
    compared_of,
    differences,
    parts_of,
    shares,
)
from autotune.schemas.choices import TrialState
from search_spaces.catalog import load_machine, load_model
from search_spaces.strategy import Strategy
from tests.autotune.cost_model.examples import FRONTIER, GPT_22B, GPT_175B
from tests.autotune.cost_model.study import SETTINGS
from tests.autotune.recommendation.examples import A, B, C, D, answer, trial
from tests.autotune.records import strategy

BEST = SETTINGS[1][0].strategy
FRONTIER_KNOWN = general_knowledge(FRONTIER)


def of(
    strategy: Strategy,
    *,
    iteration_time_s: float | None = None,
    peak_memory_gib: float | None = None,
) -> ComparedStrategy:
    return ComparedStrategy(
        role="runner_up",
        strategy=strategy,
        iteration_time_s=iteration_time_s,
        peak_memory_gib=peak_memory_gib,
    )


def test_every_part_of_the_cost_model_is_shown_once() -> None:
    predicted = SETTINGS[1][0].estimate()
    shown = {part for parts in TIME_PARTS.values() for part in parts}
    assert shown - set(predicted.time_parts_s) == {"experts", "all_to_all"}
    assert set(predicted.time_parts_s) <= shown
    assert list(TIME_WORDS) == list(TIME_PARTS)
    of_experts = {"experts", "routed_tokens"}
    assert [name for name in MEMORY_WORDS if name not in of_experts] == list(
        predicted.memory_parts_gib
    )


def test_experts_whose_tokens_cross_the_network_are_named() -> None:
    machine, mixture = load_machine("dgx-h100"), load_model("qwen3-30b-a3b")
    near = strategy(tp=1, pp=1, expert_parallel=8)
    far = replace(near, expert_parallel=16)
    within, across = (
        parts_of([of(each)], general_knowledge(machine), mixture)[0] for each in (near, far)
    )
    assert "experts" in within.sentence
    assert "network" not in within.sentence
    assert "; its expert_parallel 16 spreads the experts over 16 GPUs, across" in across.sentence


def test_parts_add_up_to_what_was_measured_or_else_predicted() -> None:
    measured, predicted = parts_of(
        [of(BEST, iteration_time_s=200.0, peak_memory_gib=44.0), of(BEST)],
        FRONTIER_KNOWN,
        GPT_175B,
    )
    assert (measured.time_origin, measured.memory_origin) == ("measured", "measured")
    assert (predicted.time_origin, predicted.memory_origin) == ("predicted", "predicted")
    assert measured.iteration_time_s == 200.0
    assert predicted.iteration_time_s == pytest.approx(SETTINGS[1][0].seconds)
    for each in (measured, predicted):
        assert sum(each.time_parts_s.values()) == pytest.approx(each.iteration_time_s)
        assert sum(each.memory_parts_gib.values()) == pytest.approx(each.memory_gib)
        assert sum(shares(each).values()) == pytest.approx(1.0)
    assert measured.memory_gib == 44.0
    assert measured.fit_probability == 1.0
    assert shares(measured) == pytest.approx(shares(predicted))
    assert measured.sentence.startswith("63 % of a step is matrix products, 21 % recomputation")


def test_differences_add_up_and_the_largest_are_named() -> None:
    """A wider tensor parallelism talks more, a deeper pipeline waits longer."""
    wider = replace(BEST, tensor_parallel=8, pipeline_parallel=8)
    deeper = replace(BEST, pipeline_parallel=32, gradient_accumulation_steps=640)
    shallow = replace(BEST, gradient_accumulation_steps=10)
    winner, *others = parts_of(
        [of(each) for each in (BEST, wider, deeper, shallow)], FRONTIER_KNOWN, GPT_175B
    )
    for each in others:
        samples = each.global_batch_size / winner.global_batch_size
        longer = each.iteration_time_s / winner.iteration_time_s / samples - 1.0
        assert sum(differences(winner, each).values()) == pytest.approx(longer, abs=1e-9)
        assert each.relative_cost == pytest.approx(1.0 + longer)
        assert "is predicted to take" in each.sentence
    more = differences(winner, others[0])
    assert max(more, key=more.__getitem__) == "tensor_parallel"
    assert others[0].sentence.startswith("TP 8 · PP 8 is predicted to take ")
    assert "more for tensor-parallel communication" in others[0].sentence
    assert " less for " in others[0].sentence
    assert others[2].sentence.startswith("GAS 10 is predicted to take 2.4 times as long: ")
    assert "of its time is the pipeline's bubble" in others[2].sentence


def test_it_is_the_same_work_that_is_compared() -> None:
    """Twice the batch takes twice the time, and no longer for a token."""
    double = replace(BEST, gradient_accumulation_steps=640)
    _, same, wide = parts_of(
        [
            of(BEST, iteration_time_s=200.0),
            of(double, iteration_time_s=400.0),
            of(replace(BEST, num_nodes=32), iteration_time_s=220.0),
        ],
        FRONTIER_KNOWN,
        GPT_175B,
        objective="tokens_per_node_hour",
    )
    assert same.relative_cost == pytest.approx(1.0)
    assert same.sentence.startswith("GAS 640 takes as many node-hours per token as the best")
    assert wide.relative_cost == pytest.approx(1.1)
    assert wide.sentence.startswith("32 nodes takes 10 % more node-hours per token")


def test_a_recommendation_says_where_each_figure_is_from() -> None:
    """The baseline that ran out of memory has its prediction; one that ran is no second entry."""
    trials = [
        trial(1, C, state=TrialState.OOM, purpose="baseline"),
        trial(2, A, seconds=3.0, peak=41.0),
        trial(3, B, seconds=4.0, probes=(8, 16)),
        trial(4, D, seconds=5.0, peak=None),
    ]
    recommendation = answer(trials)
    compared = compared_of(recommendation)
    assert [(each.role, each.strategy) for each in compared] == [
        ("winner", A),
        ("runner_up", B),
        ("runner_up", D),
        ("baseline", C),
    ]
    assert [each.time_origin for each in compared[:3]] == ["measured", "derived", "measured"]
    strategies = parts_of(compared, FRONTIER_KNOWN, GPT_22B)
    assert [each.time_origin for each in strategies] == [
        "measured",
        "derived",
        "measured",
        "predicted",
    ]
    assert [each.memory_origin for each in strategies] == [
        "measured",
        "measured",
        "predicted",
        "predicted",
    ]
    assert strategies[0].iteration_time_s == recommendation.best.metrics.iteration_time_s
    foreseen = ["is predicted to take" in each.sentence for each in strategies[1:]]
    assert foreseen == [False, False, True]
    ran = answer([trial(1, A, seconds=3.0, purpose="baseline"), *trials[1:]])
    assert [each.role for each in compared_of(ran)] == ["winner", "runner_up", "runner_up"]
    far = recommendation.model_copy(
        update={"best": recommendation.best.model_copy(update={"projected_from_nodes": 1})}
    )
    assert compared_of(far)[0].time_origin == "projected"
    assert compared_of(far)[0].memory_origin == "projected"
