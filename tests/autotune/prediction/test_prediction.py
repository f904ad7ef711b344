"""Predictions, counts of spaces, costs, and every sentence about bad input."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.calibration import general_knowledge
from autotune.measurement.metrics import probe_accumulations
from autotune.prediction.campaign import check_campaign
from autotune.prediction.campaign_cost import trial_node_hours
from autotune.prediction.plan import plan
from autotune.prediction.space import least_nodes
from autotune.prediction.strategy import predict
from autotune.schemas.choices import TrialState
from autotune.schemas.plans import CampaignPlan
from autotune.schemas.predictions import CampaignCost, Prediction
from autotune.schemas.requests import (
    Budget,
    CampaignCreate,
    PredictionQuery,
    ProtocolSpec,
)
from autotune.schemas.resolution import campaign_space, space_of, subject_of
from autotune.schemas.spaces import SpaceSpec
from evaluators.simulated import simulate
from evaluators.trial import TrialProtocol, TrialRequest
from search_spaces.catalog import load_machine, load_model
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.autotune import records
from tests.autotune.records import request as campaign

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def strategy(**changes: Any) -> Strategy:
    plain = records.strategy(tp=1, pp=8, gas=320, precision="fp16")
    return replace(plain, **changes)


def predicted(**changes: Any) -> Prediction:
    query = PredictionQuery(model="gpt-22b", machine="frontier", strategy=strategy(**changes))
    return predict(query)


def problems(request: CampaignCreate) -> dict[str, InvalidInput]:
    with pytest.raises(InvalidInputs) as refusal:
        check_campaign(request, now=NOW)
    return {problem.field: problem for problem in refusal.value.problems}


def test_prediction_of_a_legal_strategy() -> None:
    """All figures agree with one another and with the definitions."""
    answer = predicted()
    assert answer.legal
    assert answer.fits
    assert answer.reasons == []
    assert (answer.data_parallel, answer.global_batch_size) == (2, 640)
    assert answer.iteration_time_s == pytest.approx(sum(answer.time_parts_s.values()))
    assert answer.memory_gib == pytest.approx(sum(answer.memory_parts_gib.values()))
    tokens_per_s = 640 * 2048 / sum(answer.time_parts_s.values())
    assert answer.tokens_per_s == pytest.approx(tokens_per_s)
    assert answer.tokens_per_s_per_gpu == pytest.approx(tokens_per_s / 16)
    assert answer.hardware_tflops_per_gpu is not None
    share = answer.hardware_tflops_per_gpu / 191.5
    assert answer.hfu == pytest.approx(share)
    # Three passes of four are the model's own, but for the logits, which nobody recomputes.
    assert answer.mfu == pytest.approx(0.75 * share, rel=0.02)


def test_an_illegal_strategy_gets_reasons_and_no_figures() -> None:
    answer = predicted(tensor_parallel=5)
    assert not answer.legal
    assert {reason.rule for reason in answer.reasons} >= {"world_size", "heads_by_tensor"}
    assert answer.iteration_time_s is None
    assert answer.fits is None
    assert answer.time_parts_s == {}


def test_a_warning_leaves_a_strategy_legal() -> None:
    answer = predicted(tensor_parallel=16, pipeline_parallel=1)
    assert answer.legal
    assert [reason.severity for reason in answer.reasons] == ["warn"]
    assert answer.iteration_time_s is not None


def test_a_strategy_that_does_not_fit_says_so() -> None:
    answer = predicted(tensor_parallel=1, pipeline_parallel=1)
    assert answer.legal
    assert answer.fits is False
    assert answer.memory_gib is not None
    assert answer.memory_limit_gib is not None
    assert answer.memory_gib > answer.memory_limit_gib


def test_both_unknown_names_are_refused_at_once() -> None:
    query = PredictionQuery(model="gpt-22", machine="frontire", strategy=strategy())
    with pytest.raises(InvalidInputs) as refusal:
        predict(query)
    assert [problem.field for problem in refusal.value.problems] == ["model", "machine"]
    assert "gpt-22b" in str(refusal.value)
    assert "frontier" in str(refusal.value)


def test_every_fault_of_two_shapes_is_refused_at_once() -> None:
    model = Transformer(num_layers=2, hidden_size=10, num_attention_heads=3)
    machine = load_machine("frontier")
    shape = Machine(**(vars(machine) | {"gpu_idle_watt": 500.0}))
    with pytest.raises(InvalidInputs) as refusal:
        predict(PredictionQuery(model=model, machine=shape, strategy=strategy()))
    fields = {problem.field.split(".")[0] for problem in refusal.value.problems}
    assert fields == {"model", "machine"}


def planned(request: CampaignCreate, **changes: Any) -> CampaignPlan:
    space = campaign_space(request, *subject_of(request.model, request.machine))
    return plan(request, replace(space, **changes))


def test_a_plan_counts_its_space() -> None:
    """Each count against the lattice itself."""
    preset = SpaceSpec(preset="table-v")
    answer = planned(campaign(model="gpt-175b", nodes=16, space=preset))
    model, machine = load_model("gpt-175b"), load_machine("frontier")
    lattice = space_of(preset, model, machine, nodes=16).lattice()
    assert answer.raw == 3264
    assert answer.legal == len(lattice) > 2000
    assert answer.seconds < 5
    fits = general_knowledge(machine).forecast(model, lattice).fit_probability > 0.5
    assert 0 < answer.fitting == np.count_nonzero(fits)
    roomy = planned(campaign(model="gpt-175b", nodes=16, space=preset, min_headroom_gib=0.0))
    assert roomy.layouts == len({s.layout_key() for s in lattice.take(fits)})
    assert 0 < answer.layouts < roomy.layouts
    assert answer.legal_layouts == len({s.layout_key() for s in lattice})
    sizes = sorted({s.global_batch_size(machine.gpus_per_node) for s in lattice})
    assert answer.global_batch_sizes == sizes
    counts = [refusal.count for refusal in answer.refusals]
    assert counts == sorted(counts, reverse=True)
    assert any("global batch size varies" in warning for warning in answer.warnings)


def test_automatic_values_that_were_left_out_are_named() -> None:
    given_up = {"expert_tensor_parallel": (2, 4, 8), "sequence_parallel": (True,)}
    answer = planned(campaign(space=SpaceSpec(global_batch_size=640)), given_up=given_up)
    assert answer.global_batch_sizes == [640]
    assert not any("batch size varies" in warning for warning in answer.warnings)
    assert answer.warnings[-1] == (
        "left out, because the space would be too large to search: expert_tensor_parallel 2, 4, 8; "
        "sequence_parallel on; to search one of them, name its values, and fewer of another "
        "dimension"
    )


def test_a_space_with_nothing_legal_counts_what_rules_removed() -> None:
    answer = planned(campaign(nodes=1, space=SpaceSpec(tensor_parallel=3)))
    assert (answer.legal, answer.fitting, answer.layouts) == (0, 0, 0)
    assert answer.global_batch_sizes == []
    assert f"world_size removed {answer.raw}" in answer.obstacle


@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_least_nodes_is_the_least_of_all(nodes: int) -> None:
    """Against the plain way: every number of nodes, one after the other."""
    spec = SpaceSpec(micro_batch_size=1, zero_stage=1, tensor_parallel=[1, 2, 4, 8])
    question = campaign(model="gpt-175b", nodes=nodes, space=spec)
    space = space_of(spec, load_model("gpt-175b"), load_machine("frontier"), nodes=nodes)
    fitting = (
        n
        for n in range(nodes + 1, 33)
        if planned(
            question.model_copy(
                update={"nodes": n, "space": spec.model_copy(update={"num_nodes": n})}
            )
        ).fitting
    )
    assert least_nodes(question, space) == next(fitting)


def test_a_campaign_that_fits_nowhere() -> None:
    problem = problems(campaign(model="gpt-175b", nodes=1))["nodes"]
    assert "gpt-175b fits nowhere within 1 node:" in problem.reason
    least = int(problem.valid.split()[0])
    assert f"the smallest sufficient number of nodes is {least}" in problem.reason
    check_campaign(campaign(model="gpt-175b", nodes=least), now=NOW)


def test_a_campaign_that_not_even_the_whole_machine_fits() -> None:
    small = Machine(**(vars(load_machine("frontier")) | {"max_nodes": 3, "name": "small"}))
    problem = problems(campaign(model="gpt-1t", machine=small))["nodes"]
    assert "not even the whole of small, 3 nodes, would do" in problem.reason


HERE: dict[str, Any] = {
    "model": "tiny",
    "machine": "local",
    "nodes": 1,
    "evaluator": "local",
    "space": SpaceSpec(precision="fp32"),
}


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"space": SpaceSpec(tensor_parallel=7)}, "space", "heads_by_tensor removed"),
        ({"nodes": 10**6}, "nodes", "frontier has"),
        ({"evaluator": "local"}, "evaluator", "this computer is not a frontier"),
        (HERE | {"objective": "tokens_per_joule"}, "objective", "power of local is not known"),
        ({"min_headroom_gib": 63.0}, "min_headroom_gib", "is predicted to leave"),
        ({"pool_nodes": 1, "space": SpaceSpec(num_nodes=2)}, "pool_nodes", "2 nodes or more"),
        ({"pool_nodes": 10**6}, "pool_nodes", "frontier has"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(
    changes: dict[str, Any], field: str, reason: str
) -> None:
    assert reason in problems(campaign(**changes))[field].reason


def test_what_can_be_gets_its_space() -> None:
    space = check_campaign(campaign(objective="tokens_per_joule", min_headroom_gib=4.0), now=NOW)
    assert space.nodes == 2
    assert len(space.lattice()) > 0
    assert check_campaign(campaign(**HERE), now=NOW).machine.name == "local"


@pytest.mark.parametrize("zone", [UTC, None])
def test_a_deadline_in_the_past(zone: Any) -> None:
    passed = (NOW - timedelta(seconds=1)).replace(tzinfo=zone)
    request = campaign(budget=Budget(deadline=passed))
    assert "has passed" in problems(request)["budget.deadline"].reason
    check_campaign(campaign(budget=Budget(deadline=NOW + timedelta(hours=1))), now=NOW)


def test_the_clock_is_what_a_deadline_is_compared_with() -> None:
    with pytest.raises(InvalidInputs, match="has passed"):
        check_campaign(campaign(budget=Budget(deadline=datetime.now(UTC) - timedelta(days=1))))


def test_node_hours_that_buy_no_trial() -> None:
    """The cheapest trial holds a node at least for the start-up."""
    refused = problems(campaign(budget=Budget(max_node_hours=0.001)))["budget.max_node_hours"]
    assert "too small for a single trial" in refused.reason
    enough = float(refused.valid.split()[0])
    check_campaign(campaign(budget=Budget(max_node_hours=enough)), now=NOW)
    assert enough > 60 / 3600


def test_a_plan_counts_what_leaves_the_headroom_alone() -> None:
    """What would not be searched costs nothing, and is none of the trials."""
    many = Budget(max_trials=10**6)
    plain, roomy = cost_of(budget=many), cost_of(budget=many, min_headroom_gib=30.0)
    assert roomy.trials < plain.trials
    assert roomy.node_hours_per_trial != plain.node_hours_per_trial


def test_all_faults_come_at_once() -> None:
    request = campaign(
        evaluator="local",
        nodes=10**6,
        space=SpaceSpec(preset="table-vi"),
        budget=Budget(deadline=NOW - timedelta(days=1)),
    )
    assert {"budget.deadline", "evaluator", "space.preset"} <= set(problems(request))


def cost_of(**changes: Any) -> CampaignCost:
    cost = planned(campaign(**changes)).cost
    assert cost is not None
    return cost


def test_a_plan_counts_what_a_budget_buys() -> None:
    free = cost_of(budget=Budget(max_trials=10))
    each = free.node_hours_per_trial
    assert free.trials == 10
    # Two nodes are held at least for the start-up.
    assert each > 60 / 3600
    tight = cost_of(budget=Budget(max_trials=10, max_node_hours=3.5 * each))
    assert tight.trials == 3
    confirmations = free.node_hours - 10 * each
    assert confirmations > 0
    assert tight.node_hours == pytest.approx(3 * each + confirmations)


def test_the_cost_without_confirmations_and_with_few_layouts() -> None:
    spec = SpaceSpec(
        tensor_parallel=[1, 2],
        pipeline_parallel=8,
        micro_batch_size=1,
        gradient_accumulation_steps=[8, 16],
        zero_stage=1,
        num_nodes=2,
    )
    cost = cost_of(space=spec, protocol=ProtocolSpec(confirmations=0))
    assert cost.trials == 2
    assert cost.node_hours == pytest.approx(2 * cost.node_hours_per_trial)


def test_a_trial_never_costs_more_than_its_time_limit() -> None:
    cost = cost_of(nodes=2, protocol=ProtocolSpec(time_limit_s=10, confirmations=0))
    assert cost.node_hours_per_trial == pytest.approx(2 * 10 / 3600)


def test_a_trial_costs_only_the_accumulations_that_it_runs() -> None:
    """A strategy of four micro-batches runs four, beside one that is measured at eight and 16."""
    model, machine = load_model("gpt-22b"), load_machine("frontier")
    few, many = (strategy(gradient_accumulation_steps=gas) for gas in (4, 320))

    def node_hours(*trials: tuple[Strategy, tuple[int, ...]]) -> list[float]:
        strategies, accumulations = zip(*trials, strict=True)
        protocol = ProtocolSpec()
        costs = trial_node_hours(
            model, machine, strategies, accumulations, protocol=protocol, evaluator="simulated"
        )
        return [float(cost) for cost in costs]

    together = node_hours((few, (4,)), (many, (8, 16)), (few, (4,)))
    apart = [*node_hours((few, (4,))), *node_hours((many, (8, 16)))]
    assert together == pytest.approx([*apart, apart[0]])
    assert together[0] < together[1]


@pytest.mark.parametrize("nodes", [2, 64])
def test_the_predicted_cost_of_a_trial_equals_the_simulated_cost(
    tmp_path: Path, nodes: int
) -> None:
    """As the service runs it, but for what the simulated world differs from the model."""
    model, machine = load_model("gpt-22b"), load_machine("frontier")
    layout = strategy(num_nodes=nodes, gradient_accumulation_steps=20)
    probes = probe_accumulations(layout)
    (predicted,) = trial_node_hours(
        model, machine, [layout], [probes], protocol=ProtocolSpec(), evaluator="simulated"
    )
    trial = TrialRequest(
        token="t",
        transformer=model,
        machine=machine,
        strategy=layout,
        protocol=TrialProtocol(accumulations=probes),
        directory=tmp_path,
    )
    simulated = simulate(trial, started_at=NOW).outcome
    assert simulated.status is TrialState.OK
    assert predicted == pytest.approx(simulated.duration_s * nodes / 3600, rel=0.2)
