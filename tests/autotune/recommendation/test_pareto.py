"""The fronts of the rate against nodes and against energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.recommendation.ranking import COSTS, Contender, pareto_fronts
from autotune.recommendation.recommendation import recommend
from autotune.schemas.choices import ParetoCost, TrialState
from autotune.schemas.recommendations import Recommendation
from search_spaces.strategy import Strategy
from tests.autotune.recommendation.examples import answer, campaign, measured_otherwise, trial
from tests.autotune.records import MACHINE, strategy


def layouts(recommendation: Recommendation, against: str) -> list[list[int]]:
    """The trials of each point of a front."""
    [front] = [front for front in recommendation.pareto if front.against == against]
    return [point.trial_numbers for point in front.points]


def test_a_front_has_what_is_faster_than_all_that_take_as_little() -> None:
    """Of a global batch of 64 samples each, so that seconds are all that differs."""
    trials = [
        trial(1, strategy(nodes=4), seconds=1.0),
        trial(2, strategy(nodes=1), seconds=3.0),
        trial(3, strategy(nodes=2), seconds=1.5),
        trial(4, strategy(nodes=2, tp=1), seconds=1.4),
        trial(5, strategy(nodes=4, tp=1), seconds=1.41),
    ]
    assert layouts(answer(trials), "num_nodes") == [[2], [4], [1]]


def test_energy_has_a_front_where_power_is_known() -> None:
    """Twice the nodes for a fifth more: faster, and dearer. Half the nodes at half the rate cost
    what they did, but for what the slower step leaves idle."""
    trials = [
        trial(1, strategy(nodes=4), seconds=1.0),
        trial(2, strategy(nodes=2), seconds=1.2),
        trial(3, strategy(nodes=2, tp=1), seconds=1.9),
    ]
    found = answer(trials)
    assert layouts(found, "joules_per_token") == [[2], [1]]
    points = found.pareto[1].points
    energies = [point.joules_per_token or 0.0 for point in points]
    assert energies[1] == pytest.approx(energies[0] * 2 / 1.2, rel=0.1)
    assert not any(point.energy_sampled for point in points)
    unknown = campaign(machine=replace(MACHINE, gpu_max_watt=None))
    without = recommend(unknown, [measured_otherwise(t, tokens_per_joule=None) for t in trials])
    assert without is not None
    assert [front.against for front in without.pareto] == ["num_nodes"]


def test_what_cannot_be_had_is_on_no_front() -> None:
    fast, tight, slow = strategy(nodes=1), strategy(nodes=1, tp=1), strategy(nodes=2)
    trials = [
        trial(1, fast, seconds=1.0),
        trial(2, fast, purpose="confirmation", state=TrialState.OOM),
        trial(3, tight, seconds=1.1, peak=MACHINE.memory_gib - 1),
        trial(4, slow, seconds=9.0),
    ]
    assert layouts(answer(trials, min_headroom_gib=2.0), "num_nodes") == [[4]]


MEASURED = trial(1, strategy(), seconds=1.0)
FEW = st.integers(1, 6)
FATE = st.sampled_from([*["stands"] * 9, "failed again", "too full", "projected"])


@st.composite
def lattices(draw: st.DrawFn) -> list[Contender]:
    """Layouts of few rates and costs, so that many are equal in one or both; some of them failed
    when they were run again, or leave too little memory, or draw a power that is not known."""
    contenders = []
    for number in range(draw(st.integers(0, 10))):
        rate, energy, fate = float(draw(FEW)), draw(st.one_of(st.none(), FEW)), draw(FATE)
        figures = {"tokens_per_s": rate, "tokens_per_joule": energy and 1.0 / energy}
        ran = measured_otherwise(MEASURED, **figures)
        contenders.append(
            Contender(
                strategy=replace(strategy(), num_nodes=draw(FEW), micro_batch_size=number + 1),
                trials=(ran,),
                objective="tokens_per_s",
                failed_confirmation=fate == "failed again",
                keeps_headroom=fate != "too full",
                projection=ran.metrics if fate == "projected" else None,
            )
        )
    return contenders


def unbeaten(contenders: Sequence[Contender], against: ParetoCost) -> list[Strategy]:
    """By comparing all pairs: those that none equals in one and beats in the other; of equal ones
    the first, the least cost first."""
    able = [
        each
        for each in contenders
        if each.projection is None and each.keeps_headroom and not each.failed_confirmation
    ]
    known = sorted(
        (cost, -each.metrics.tokens_per_s, each.strategy)
        for each in able
        if (cost := COSTS[against](each)) is not None
    )
    return [
        own[2]
        for own in known
        if not any(o[0] <= own[0] and o[1] <= own[1] and o < own for o in known)
    ]


@settings(max_examples=100, deadline=None)
@given(lattices())
def test_fronts_are_those_of_all_pairs(contenders: list[Contender]) -> None:
    fronts = pareto_fronts(contenders)
    found = {front.against: [point.strategy for point in front.points] for front in fronts}
    expected = {against: unbeaten(contenders, against) for against in COSTS}
    assert found == {against: shapes for against, shapes in expected.items() if shapes}
