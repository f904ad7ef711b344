"""Campaigns side by side."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from autotune.recommendation.recommendation import recommend
from autotune.recommendation.side_by_side import CampaignResult, side_by_side
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from tests.autotune.recommendation.examples import campaign, trial
from tests.autotune.records import NOW, strategy

A, B = strategy(tp=2), strategy(tp=4)


def ended(*trials: Trial) -> list[Trial]:
    return [
        each.model_copy(update={"finished_at": NOW + timedelta(minutes=each.number)})
        for each in trials
    ]


def result(subject: Campaign, *trials: Trial) -> CampaignResult:
    known = ended(*trials)
    return CampaignResult(campaign=subject, trials=known, recommendation=recommend(subject, known))


def campaign_with(number: int, **request: Any) -> Campaign:
    plain = campaign(id=number, node_hours=float(number))
    return plain.model_copy(update={"request": plain.request.model_copy(update=request)})


def test_the_better_is_named_with_its_gain_and_cost() -> None:
    slow = result(campaign_with(2), trial(1, A, seconds=2.0))
    quick = result(campaign_with(4), trial(1, A, seconds=1.0))
    found = side_by_side([slow, quick])
    assert found.comparable
    assert [each.campaign_id for each in found.campaigns] == [2, 4]
    assert found.sentence.startswith("Campaign 4 found the best, ")
    words = " for 4 node-hours: 2 times that of campaign 2 (2 node-hours)."
    assert found.sentence.endswith(f" tokens/s{words}")
    simulated = [
        replace(each, campaign=each.campaign.model_copy(update={"simulated": True}))
        for each in (slow, quick)
    ]
    assert side_by_side(simulated).sentence.endswith(f" tokens/s (simulated){words}")


def test_progress_holds_each_improvement_over_what_was_spent() -> None:
    failed = trial(2, B, state=TrialState.OOM)
    narrow = trial(3, A, seconds=0.1).model_copy(update={"stands_for_nodes": 64})
    subject = result(
        campaign_with(2), trial(1, A, seconds=2.0), failed, narrow, trial(4, B, seconds=1.0)
    )
    [side, _] = side_by_side([subject, subject]).campaigns
    assert [(step.trial, step.node_hours) for step in side.progress] == [(1, 0.5), (4, 2.0)]
    assert side.progress[0].objective * 2 == side.progress[1].objective


def test_the_best_stays_until_the_end_of_what_was_spent() -> None:
    subject = result(campaign_with(2), trial(1, A, seconds=1.0), trial(2, B, seconds=2.0))
    [side, _] = side_by_side([subject, subject]).campaigns
    assert [(step.trial, step.node_hours) for step in side.progress] == [(1, 0.5), (2, 1.0)]
    assert side.progress[0].objective == side.progress[1].objective


def test_what_says_nothing_of_each_other_is_not_compared() -> None:
    one = result(campaign_with(2), trial(1, A, seconds=1.0))
    energy = result(campaign_with(3, objective="tokens_per_node_hour"), trial(1, A, seconds=1.0))
    other = campaign_with(4)
    larger = replace(other.model, name="gpt-big", num_layers=96)
    model = result(other.model_copy(update={"model": larger}), trial(1, A, seconds=1.0))
    simulated = result(
        campaign_with(5).model_copy(update={"simulated": True}), trial(1, A, seconds=1.0)
    )
    for another, words in (
        (energy, "optimise different things"),
        (model, "different models (gpt-22b, gpt-big)"),
        (simulated, "simulated"),
    ):
        found = side_by_side([one, another])
        assert not found.comparable
        assert words in found.sentence


def test_a_campaign_without_a_result_has_no_winner() -> None:
    nothing = result(campaign_with(2), trial(1, A, state=TrialState.OOM))
    found = side_by_side([nothing, result(campaign_with(3), trial(1, A, seconds=1.0))])
    assert (found.campaigns[0].winner, found.campaigns[0].progress) == (None, [])
    assert found.sentence == "Fewer than two of them have a result."
