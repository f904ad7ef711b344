"""A question before anything runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.calibration import Calibration, general_knowledge
from autotune.prediction.campaign import check_campaign
from autotune.prediction.candidates import OWN_ERROR, Candidates
from autotune.prediction.plan import plan
from autotune.prediction.strategy import predict
from autotune.schemas.campaigns import StartedFrom
from autotune.schemas.plans import CampaignPlan
from autotune.schemas.predictions import CampaignCost
from autotune.schemas.requests import CampaignCreate, PredictionQuery
from autotune.schemas.resolution import space_of
from autotune.schemas.spaces import SpaceSpec
from autotune.search.layouts import Layouts
from evaluators.adapter.catalog import load_adapter
from evaluators.adapter.rendering import capabilities_of_adapter
from search_spaces.catalog import load_machine, load_model
from search_spaces.errors import InvalidInputs
from search_spaces.space import SearchSpace
from tests.autotune.prediction.calibrated import SMALL, slow
from tests.autotune.records import request


def small_request(**changes: Any) -> CampaignCreate:
    return request(**{"space": SMALL} | changes)


def space_for(question: CampaignCreate) -> SearchSpace:
    model, machine = load_model(str(question.model)), load_machine(str(question.machine))
    return space_of(question.space, model, machine, nodes=question.nodes)


def planned(
    question: CampaignCreate, calibration: Calibration | None = None, **options: Any
) -> CampaignPlan:
    space = space_for(question)
    return plan(question, space, calibration, **options)


def test_a_plan_ranks_the_best_of_each_layout() -> None:
    """Against the plain way: all of the space forecast, sorted, and each layout taken once."""
    answer = planned(small_request(min_headroom_gib=0.0), most=7)
    space = space_for(small_request())
    lattice, machine = space.lattice(), space.machine
    forecast = general_knowledge(machine).forecast(space.transformer, lattice)
    rates = lattice.global_batch_size * space.transformer.seq_length / forecast.iteration_time_s
    fits = forecast.fit_probability > 0.5
    assert answer.legal == len(lattice)
    assert answer.fitting == np.count_nonzero(fits)
    assert 7 < answer.fitting < answer.legal
    best: dict[object, float] = {}
    doubtful = forecast.fit_probability < 0.75
    for row in np.lexsort([-rates, doubtful, ~fits])[: np.count_nonzero(fits)].tolist():
        best.setdefault(lattice.strategy(row).layout_key(), rates[row])
    assert answer.layouts == len(best)
    assert [each.tokens_per_s for each in answer.best] == pytest.approx(list(best.values())[:7])
    assert [each.rank for each in answer.best] == list(range(1, 8))


def test_a_row_agrees_with_the_prediction_of_its_strategy() -> None:
    calibration = slow()
    for row in planned(small_request(), calibration, most=3).best:
        wanted = PredictionQuery(model="gpt-22b", machine="frontier", strategy=row.strategy)
        alone = predict(wanted, calibration)
        assert row.tokens_per_s == pytest.approx(alone.tokens_per_s)
        assert row.memory_gib == pytest.approx(alone.memory_gib)
        assert row.fit_probability == pytest.approx(alone.fit_probability)
        assert row.global_batch_size == alone.global_batch_size
        assert row.tokens_per_s_low < row.tokens_per_s < row.tokens_per_s_high


def test_more_strategies_than_can_be_estimated_are_refused() -> None:
    """Every accumulation up to 1024, and choices beside it."""
    wide = SpaceSpec(
        gradient_accumulation_steps={"minimum": 1, "maximum": 1024},
        micro_batch_size=[1, 2, 4, 8],
        zero_stage=[0, 1],
        flash_attention=[True, False],
        activation_checkpointing=["none", "selective", "full"],
        num_nodes=2,
    )
    with pytest.raises(InvalidInputs, match="strategies are legal, which are too many") as refusal:
        space_for(small_request(space=wide))
    assert refusal.value.problems[0].field == "space"


def test_what_may_fit_is_planned_with_its_risk() -> None:
    """A trainer's own bytes decide: 53 % of the leanest with others, 43 % with its own."""
    wanted = small_request(model="qwen3-30b-a3b", nodes=1, space=SpaceSpec(global_batch_size=256))
    answer = planned(wanted)
    assert (answer.fitting, answer.obstacle) == (0, "")
    chances = [each.fit_probability for each in answer.best]
    assert 0.1 < max(chances) < 0.5
    assert chances[0] == max(chances), "the likeliest comes first"
    assert f"fits with a probability of {chances[0]:.0%}" in answer.sentence
    check_campaign(wanted)


@pytest.mark.parametrize(
    ("machine", "nodes", "across"), [("dgx-h100", 2, True), ("gb200-nvl72", 4, False)]
)
def test_experts_whose_tokens_cross_the_network_are_named(
    machine: str, nodes: int, across: bool
) -> None:
    spread = SpaceSpec(
        tensor_parallel=1,
        pipeline_parallel=1,
        micro_batch_size=1,
        gradient_accumulation_steps=8,
        zero_stage=1,
        num_nodes=nodes,
        expert_parallel=16,
    )
    wanted = small_request(model="qwen3-30b-a3b", machine=machine, nodes=nodes, space=spread)
    sentence = planned(wanted).sentence
    words = "Its expert_parallel 16 spreads the experts over 16 GPUs, across nodes of 8 GPUs"
    assert (words in sentence) is across
    assert ("network" in sentence) is across


def test_parts_add_up_and_intervals_hold_what_they_are_of() -> None:
    answer = planned(small_request())
    assert answer.baseline is not None
    for each in (*answer.best, answer.baseline):
        assert sum(each.time_parts_s.values()) == pytest.approx(each.iteration_time_s)
        assert sum(each.memory_parts_gib.values()) == pytest.approx(each.memory_gib)
        assert each.iteration_time_low_s < each.iteration_time_s < each.iteration_time_high_s
        assert each.memory_low_gib < each.memory_gib < each.memory_high_gib
    assert answer.over_baseline == pytest.approx(
        answer.best[0].tokens_per_s / answer.baseline.tokens_per_s
    )


def test_trials_leave_less_to_be_found() -> None:
    """What is known of the machine already, no campaign need find out."""
    unknown, known = planned(small_request()), planned(small_request(), slow())
    assert unknown.gain is not None
    assert known.gain is not None
    assert 0 < known.gain.rate_gain < 0.6 * unknown.gain.rate_gain
    assert known.gain.rate_gain_high < unknown.gain.rate_gain_high
    assert known.gain.saved_share < unknown.gain.saved_share
    assert known.best[0].tokens_per_s < 0.7 * unknown.best[0].tokens_per_s


def test_the_gain_is_of_the_best_over_the_first_fit_of_each_draw() -> None:
    """Against a loop over the draws."""
    space = space_for(small_request())
    candidates = Candidates.of(
        space,
        general_knowledge(space.machine),
        layouts=Layouts.of(space, objective="tokens_per_s"),
        headroom_gib=0.0,
    )
    belief, layouts = candidates.belief, candidates.layouts
    assert len(belief.rows) <= 200
    rows = np.concatenate([candidates.likely, np.setdiff1d(belief.rows, candidates.likely)])
    generator, columns = np.random.default_rng(0), belief.columns.take(rows)
    times = belief.calibration.time.draws(columns, count=1000, generator=generator)
    fits = belief.calibration.draws_of_fitting(columns, count=1000, generator=generator)
    expected = times.mean(axis=0)
    rates = np.exp(layouts.log_work[rows] - expected - OWN_ERROR * (times - expected))
    gains = []
    for draw, fitting in zip(rates, fits, strict=True):
        places = np.flatnonzero(fitting)
        if len(places) and places[0] < len(candidates.likely):
            gains.append(draw[places].max() / draw[places[0]] - 1.0)
    cost = CampaignCost(trials=1, node_hours_per_trial=1.0, node_hours=1.0)
    assert candidates.gain(cost, tokens=None).rate_gain == pytest.approx(np.mean(gains))


def test_over_a_training_the_gain_is_in_node_hours() -> None:
    answer = planned(small_request(budget={"train_tokens": 300e9}))
    assert answer.gain is not None
    assert answer.cost is not None
    assert answer.gain.training_node_hours is not None
    best = answer.best[0]
    hours = 300e9 / best.tokens_per_s * best.strategy.num_nodes / 3600
    assert answer.gain.training_node_hours == pytest.approx(hours)
    assert answer.gain.saved_node_hours == pytest.approx(hours * answer.gain.saved_share)
    assert answer.gain.break_even_tokens is not None
    paid = answer.gain.break_even_tokens * answer.gain.node_hours_per_token
    assert paid * answer.gain.saved_share == pytest.approx(answer.cost.node_hours)
    assert "node-hours over 300 billion tokens" in answer.sentence


@pytest.mark.parametrize(("adapter", "unsharded"), [("template", True), ("litgpt", False)])
def test_the_obstacle_names_a_trainer_that_shards_nothing(adapter: str, unsharded: bool) -> None:
    """Which stage of ZeRO it has stands in its adapter, and none is 0."""
    program = capabilities_of_adapter(load_adapter(adapter))
    model, machine = load_model("gpt-175b"), load_machine("dgx-h100")
    question = request(model="gpt-175b", machine="dgx-h100", nodes=1, space=SpaceSpec())
    space = space_of(question.space, model, machine, nodes=1, program=program)
    obstacle = plan(question, space).obstacle
    assert obstacle.startswith("gpt-175b fits nowhere within 1 node")
    assert (f"{adapter} always has ZeRO 0 here" in obstacle) is unsharded
    assert ("add zero_stage to [set] or [fixed]" in obstacle) is unsharded


def test_where_nothing_fits_it_says_why_and_what_would_do() -> None:
    answer = planned(small_request(model="gpt-175b", space=SpaceSpec(global_batch_size=512)))
    assert (answer.fitting, answer.best, answer.cost, answer.gain) == (0, [], None, None)
    assert answer.obstacle.startswith("gpt-175b fits nowhere within 2 nodes")
    assert answer.sentence.startswith(answer.obstacle)
    remedy = answer.remedies[0]
    assert remedy.fields["nodes"] == 8
    again = planned(
        small_request(
            model="gpt-175b", nodes=8, space=SpaceSpec(global_batch_size=512, num_nodes=[8])
        )
    )
    assert again.fitting > 0


def test_headroom_counts_as_taken() -> None:
    plain, roomy = planned(small_request()), planned(small_request(min_headroom_gib=20))
    assert roomy.fitting < plain.fitting
    assert all(each.memory_gib <= 64 - 20 for each in roomy.best)


def test_the_objective_decides_the_order() -> None:
    wide = SMALL.model_copy(update={"num_nodes": [1, 2]})
    fastest = planned(small_request(space=wide))
    thrifty = planned(small_request(space=wide, objective="tokens_per_s_per_gpu"))
    assert fastest.best[0].strategy.num_nodes == 2
    for answer in (fastest, thrifty):
        objectives = [each.objective for each in answer.best]
        assert objectives == sorted(objectives, reverse=True)
    each = thrifty.best[0]
    assert each.objective == pytest.approx(each.tokens_per_s / (8 * each.strategy.num_nodes))


def test_an_objective_without_figures_is_refused() -> None:
    space = space_for(
        small_request(machine="local", evaluator="local", model="tiny", nodes=1, space={})
    )
    wanted = small_request(objective="tokens_per_joule")
    with pytest.raises(InvalidInputs, match="power"):
        plan(wanted, space, general_knowledge(space.machine))


def test_what_it_starts_from_is_repeated() -> None:
    sources = [StartedFrom(campaign_id=3, name="", trials=24)]
    assert planned(small_request(), slow(), started_from=sources).started_from == sources
