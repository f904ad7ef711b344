"""The next start of a campaign's knobs, from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.requests import CampaignCreate
from autotune.schemas.trials import Trial
from autotune.search import CampaignBelief
from evaluators.adapter.adapter import Adapter
from evaluators.adapter.catalog import load_adapter
from evaluators.cluster import ClusterProfile, profile_as_dict
from evaluators.cluster.knobs import read_knob_file
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.strategy import Strategy
from server.campaign.knobs import check_knobs, knobs_of_campaign, next_knob_start
from server.campaign.scheduling import NextTrials
from server.campaign.start import space_of_campaign
from server.campaign.worth import proposer_of, trial_cost
from tests.autotune import records
from tests.autotune.recommendation.examples import trial
from tests.autotune.records import request, strategy

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ENDED = NextTrials(phase_ends="Budget spent: 1 trial.")
OWN = """
[knob.stream]
meaning = "streams of copies"
values = [1, 2]
numerics = "identical"
when = "data_parallel > 1"
set = { "$STREAMS" = "{stream}" }

[knob.rank_order]
meaning = "of ranks in a ring, which one rank does not have"
values = ["default", "snake"]
numerics = "reordered"
when = "world_size == 1"
set = { "$RING" = "{rank_order}" }

[knob.pipe]
meaning = "a setting of the streams"
values = [1, 2]
numerics = "identical"
when = "stream == 1"
set = { "$PIPE" = "{pipe}" }

[knob.dense]
meaning = "a kernel whose worth depends on the size"
values = [false, true]
numerics = "identical"
reopens = true
set = { "$DENSE" = "{dense}" }
conflicts = [{ when = "dense and zero_stage == 3", because = "it needs whole weights" }]
"""
LAYOUT = strategy(tp=1, pp=1, mbs=2, gas=4, zero_stage=2, nodes=1, activation_checkpointing="none")
PROFILE = ClusterProfile(name="local", knob=read_knob_file(OWN))
IDLE = "knobs not tried: no effect on the best layout, or a conflict with it"


def campaign(**changes: Any) -> Campaign:
    fields: dict[str, Any] = {"evaluator": "local", "knobs": "all", "knob_file": OWN, "nodes": 1}
    budget = {"max_trials": 1, "train_tokens": 1e12} | changes.pop("budget", {})
    wanted = request(**fields | {"budget": budget} | changes)
    return records.campaign(request=wanted, simulated=False)


def next_of(
    subject: Campaign, trials: list[Trial], *, ended: NextTrials = ENDED, knob_file: str = OWN
) -> NextTrials:
    profile = profile_as_dict(replace(PROFILE, knob=read_knob_file(knob_file)))
    space = space_of_campaign(subject.request, subject.model, subject.machine, profile=profile)
    belief, cost = CampaignBelief.over(space), trial_cost(subject, trials)
    return next_knob_start(
        subject,
        trials,
        proposer_of(subject, space, belief=belief, cost=cost),
        knobs_of_campaign(subject.request, profile),
        space.program,
        now=NOW,
        ended=ended,
    )


def confirmed(layout: Strategy = LAYOUT) -> list[Trial]:
    return [
        trial(1, layout, seconds=1.0, probes=(2, 4)),
        trial(2, layout, seconds=1.0, purpose="confirmation", node_hours=0.1),
        trial(3, layout, seconds=1.0, purpose="confirmation", node_hours=0.1),
    ]


def carried_out(
    subject: Campaign, gains: dict[str, float], rows: Sequence[Trial] = ()
) -> tuple[list[Trial], NextTrials]:
    trials = [*rows] or confirmed()
    while (following := next_of(subject, trials)).strategies:
        (start,) = following.strategies
        assert following.purpose == "knob"
        rate = 1.0 + sum(gains.get(name, 0.0) for name, _ in start.settings)
        trials.append(trial(len(trials) + 1, start, seconds=1.0 / rate, purpose="knob"))
        assert len(trials) < 60
    return trials, following


def test_knobs_that_apply_are_tried_until_all_is_decided() -> None:
    trials, last = carried_out(campaign(), {"stream": 0.05})
    tried = {name for each in trials[3:] for name, _ in each.strategy.settings}
    assert {"stream", "dense", "overlap"} <= tried
    assert "rank_order" not in tried, "it changes nothing with two ranks"
    assert trials[3].strategy == LAYOUT, "the baseline comes first"
    assert last == ENDED


def test_named_knobs_only_and_both_sizes_where_the_sign_depends() -> None:
    trials, last = carried_out(campaign(knobs=["dense", "rank_order"]), {})
    assert {name for each in trials[3:] for name, _ in each.strategy.settings} == {"dense"}
    assert "; knobs rank_order not tried: no effect on the best" in (last.phase_ends or "")
    sizes = {
        (t.strategy.micro_batch_size, t.strategy.gradient_accumulation_steps) for t in trials[3:]
    }
    assert sizes == {(2, 4), (1, 8)}, "twice the size would not fit"


def test_a_condition_may_mention_a_knob_that_is_not_tried() -> None:
    trials, _ = carried_out(campaign(knobs=["pipe"]), {})
    assert {name for each in trials[3:] for name, _ in each.strategy.settings} == {"pipe"}


def test_a_conflict_with_the_layout_is_not_tried() -> None:
    whole = replace(LAYOUT, zero_stage=3)
    ends = next_of(campaign(knobs=["dense"]), confirmed(whole)).phase_ends
    assert ends == f"Budget spent: 1 trial; {IDLE}"


def test_a_condition_without_a_value_starts_nothing() -> None:
    unclear = OWN.replace('when = "stream == 1"', 'when = "1 / (micro_batch_size - 2) > 0"')
    assert unclear != OWN
    ends = next_of(campaign(knobs=["pipe"]), confirmed(), knob_file=unclear).phase_ends
    assert ends == f"Budget spent: 1 trial; {IDLE}"
    unclear = OWN.replace("dense and zero_stage == 3", "1 / (zero_stage - 2) > 0")
    assert unclear != OWN
    ends = next_of(campaign(knobs=["dense"]), confirmed(), knob_file=unclear).phase_ends
    assert ends == f"Budget spent: 1 trial; {IDLE}"


def test_a_runner_up_level_with_the_best_is_tried_too() -> None:
    other = replace(LAYOUT, zero_stage=1)
    rows = [*confirmed(), trial(4, other, seconds=1.001, purpose="confirmation")]
    trials, _ = carried_out(campaign(knobs=["dense"]), {}, rows)
    stages = [each.strategy.zero_stage for each in trials[4:]]
    assert stages == sorted(stages, reverse=True), "the best first"
    assert set(stages) == {1, 2}
    behind = [*confirmed(), trial(4, other, seconds=1.1, purpose="confirmation")]
    trials, _ = carried_out(campaign(knobs=["dense"]), {}, behind)
    assert {each.strategy.zero_stage for each in trials[4:]} == {2}


def test_without_knobs_or_a_layout_nothing_starts() -> None:
    assert next_of(campaign(knobs=[]), confirmed()) == ENDED
    ends = next_of(campaign(), []).phase_ends
    assert ends == "Budget spent: 1 trial; knobs not tried: no layout is confirmed"
    again = next_of(campaign(), [], ended=NextTrials(phase_ends=ends)).phase_ends
    assert again == ends, "an extension tried none either"


def test_node_hours_limit_the_starts() -> None:
    spent = campaign(budget={"max_node_hours": 0.5})
    ends = next_of(spent, confirmed()).phase_ends or ""
    assert ends.startswith("Budget spent: 1 trial; knobs not decided: ")


def test_starts_that_are_lost_end_the_phase() -> None:
    lost = [
        trial(number, LAYOUT, purpose="knob", state=TrialState.NODE_FAIL) for number in (4, 5, 6)
    ]
    assert next_of(campaign(), [*confirmed(), *lost[:2]]).strategies == (LAYOUT,)
    ends = next_of(campaign(), [*confirmed(), *lost]).phase_ends or ""
    assert "3 starts in a row did not run to their end" in ends


@pytest.mark.parametrize("written", ["", "none", []])
def test_none_stands_for_no_knobs(written: Any) -> None:
    assert campaign(knobs=written).request.knobs == []


@pytest.mark.parametrize("written", ["all", " all ", "all,dense", ["dense", "all"]])
def test_all_includes_the_knobs_named_with_it(written: Any) -> None:
    assert campaign(knobs=written).request.knobs == "all"


@pytest.mark.parametrize(
    ("knobs", "evaluator", "reason"),
    [("all", "simulated", "the simulator has no knobs"), (["dens"], "local", "this knob")],
)
def test_knobs_that_do_not_exist_are_refused(knobs: Any, evaluator: str, reason: str) -> None:
    wanted = CampaignCreate.model_validate(
        {"model": "tiny", "machine": "local", "evaluator": evaluator}
    )
    with pytest.raises(InvalidInput, match=reason) as refused:
        check_knobs(knobs, wanted, PROFILE)
    assert refused.value.field == "knobs"


def test_knobs_where_there_are_none_are_refused() -> None:
    bare = ClusterProfile(name="local", adapter=replace(load_adapter("template"), knobs={}))
    check_knobs([], campaign().request, bare)
    with pytest.raises(InvalidInput, match="neither the trainer nor the cluster has knobs"):
        check_knobs("all", campaign().request, bare)


def test_a_setting_with_an_unknown_name_is_refused() -> None:
    profile = replace(PROFILE, knob=read_knob_file(OWN.replace("{pipe}", "{pip + python}")))
    with pytest.raises(InvalidInputs) as refused:
        check_knobs(["dense"], campaign().request, profile)
    problems = [(each.field, each.reason) for each in refused.value.problems]
    assert problems == [
        ("knob.pipe.set.$PIPE", "unknown name pip; did you mean pipe?"),
        ("knob.pipe.set.$PIPE", "unknown name python"),
    ]


@pytest.mark.parametrize(
    ("name", "trainer"), [("overlap", None), ("cuda_graphs", load_adapter("megatron-lm"))]
)
def test_an_own_knob_needs_a_name_of_its_own(name: str, trainer: Adapter | None) -> None:
    """The trainer's knob would run instead."""
    own = OWN.replace("[knob.stream]", f"[knob.{name}]").replace("{stream}", f"{{{name}}}")
    own = own.replace("stream == 1", f"{name} == 1")
    profile = replace(PROFILE, adapter=trainer, knob=read_knob_file(own))
    with pytest.raises(InvalidInput, match="has a knob or a dimension of this name") as refused:
        check_knobs("all", campaign(knob_file=own).request, profile)
    assert refused.value.field == f"knob.{name}"
