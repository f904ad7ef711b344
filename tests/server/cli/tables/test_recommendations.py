"""Recommendations as text."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Group

from autotune.schemas.knobs import KnobFindings, KnobResult
from server.cli.tables.campaigns import campaigns, knobs, recommendation, trials
from tests.autotune.recommendation.examples import answer, trial
from tests.autotune.records import strategy
from tests.server.cli.tables.printing import printed
from tests.server.figures.subjects import campaign as listed_campaign
from tests.server.figures.subjects import trial as listed_trial


@pytest.mark.parametrize("width", [80, 60])
def test_no_figure_is_cut_off_in_a_narrow_terminal(width: int) -> None:
    rates = [1234567.0, 2345678.0, 3456789.0]
    ran = [listed_trial(n, rate) for n, rate in enumerate(rates, start=1)]
    found = [
        listed_campaign(id=n, trials=30, best_objective=rate)
        for n, rate in enumerate(rates, start=1)
    ]
    for table in (trials(ran), campaigns(found)):
        lines = printed(table, width=width)
        assert all(len(line) <= width for line in lines.splitlines())
        for rate in rates:
            assert f"{rate:,.0f}" in lines
        assert "…" not in lines


def test_a_list_says_what_a_campaign_waits_for_or_why_it_ended() -> None:
    reason = "Priority: jobs of a higher priority are before it"
    waits = listed_campaign(id=1, waits_for=reason, reason="")
    ended = listed_campaign(id=2, reason="Budget spent: 6 trials.")
    head, first, second = printed(campaigns([waits, ended]), width=300).splitlines()[-3:]
    assert head.split()[-1] == "why"
    assert first.rstrip().endswith("waiting: Priority")
    assert second.rstrip().endswith("Budget spent")


def test_what_is_the_same_in_all_rows_is_shown_once() -> None:
    first = listed_trial(1, 50.0)
    other = replace(first.strategy, tensor_parallel=4)
    lines = printed(trials([first, listed_trial(2, 60.0, strategy=other)]))
    assert lines.count("ZeRO-1") == lines.count("2 nodes") == 1
    assert lines.count("TP 8") == lines.count("TP 4") == 1
    assert "all: purpose search · state ok" in lines
    assert "TP 8 · PP 1" in printed(trials([first]))


def test_a_front_is_shown_where_there_is_a_choice() -> None:
    wide, narrow = (
        trial(1, strategy(nodes=4), seconds=1.0),
        trial(2, strategy(nodes=2), seconds=1.2),
    )
    both = printed(recommendation(answer([wide, narrow])))
    assert "fastest on this many nodes" in both
    assert "fastest at this energy" in both
    assert "energy predicted" in both
    assert "MWh, hosts included (predicted); " in both
    assert " GJ) without hosts" in both
    assert "all: TP 2 · PP 4 · MBS 1 · ZeRO-1" in both
    assert "fastest" not in printed(recommendation(answer([wide])))


def test_knobs_and_the_noise_follow_the_best() -> None:
    ran = [trial(1, strategy(nodes=2), seconds=1.0)]
    plain = answer(ran)
    assert not list(knobs(plain))
    results = [
        KnobResult(
            knob="overlap",
            value=value,
            decision=decision,
            why="Faster with a probability of 0.999.",
            starts=3,
            gain=gain,
            gain_low=gain - 0.01,
            gain_high=gain + 0.01,
            seen_in="time",
        )
        for value, decision, gain in ((True, "adopted", 0.031), (False, "rejected", -0.02))
    ]
    found = KnobFindings(
        strategy=ran[0].strategy,
        settings={"overlap": True},
        gain=0.031,
        gain_low=0.021,
        gain_high=0.041,
        starts=8,
        node_hours=4.0,
        results=results,
    )
    both = plain.model_copy(update={"knobs": found, "noise_floor": 0.0123})
    lines = printed(Group(*knobs(both)), width=200)
    assert lines.startswith("Use overlap = on: 3.1 % faster (80 %: 2.1 % to 4.1 %).")
    assert "off    rejected  -2.0 % (-3.0 % to -1.0 %)" in lines
    assert "Differences below 1.2 % are noise here." in lines
    assert lines.strip() in printed(recommendation(both), width=200)


def test_what_runners_up_share_is_shown_once() -> None:
    layouts = (strategy(nodes=4), strategy(nodes=2), strategy(nodes=2, tp=1))
    ran = [trial(n, layout, seconds=float(n)) for n, layout in enumerate(layouts, start=1)]
    found = printed(recommendation(answer(ran)))
    assert "all: PP 4 · MBS 1 · ZeRO-1 · 2 nodes" in found
    assert "2 nodes" not in found.partition("all: ")[2].partition("\n")[2].split("all: ")[0]


def test_what_ran_with_few_layers_says_so() -> None:
    ran = trial(1, strategy(pp=2, nodes=2), seconds=1.0)
    short = ran.model_copy(update={"stands_for_nodes": 8, "num_layers": 12})
    found = printed(recommendation(answer([short])))
    assert "projected from 12 layers on 2 nodes, not run in full" in found
    assert "PP 8" in found
    assert "(12 layers, for 8 nodes)" in printed(trials([short]), width=200)


def test_simulated_figures_are_no_measurements() -> None:
    best = trial(1, strategy(), seconds=1.0)
    note = "note: Simulated: every number"
    assert note in printed(recommendation(answer([best], simulated=True)))
    assert note not in printed(recommendation(answer([best])))
