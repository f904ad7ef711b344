"""How a recommendation stands in its space, as the service tells it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from fastapi import FastAPI

from autotune.schemas import Campaign, Recommendation
from server.api.standings import Standings
from server.figures.source import FigureSource, SpaceBelief


def test_many_who_ask_are_told_the_same_and_it_is_worked_out_once(
    finished: tuple[FastAPI, Campaign],
) -> None:
    app, campaign = finished
    source: FigureSource = app.state.campaigns.latest(campaign.id)
    subject = Standings()

    def ask(known: FigureSource) -> Recommendation:
        assert known.recommendation is not None
        return subject.added_to(known.recommendation, known)

    with ThreadPoolExecutor(8) as pool:
        first, *others = (each.standing for each in pool.map(ask, [source] * 8))
    assert first is not None
    assert all(other is first for other in others)
    assert first.sentence.startswith("Best of its space with ")
    assert first.neighbours
    assert Standings().added_to(ask(source), source).standing == first
    fewer = [t for t in source.trials if t.number == ask(source).best.trial_numbers[0]]
    belief = SpaceBelief.of(campaign, fewer)
    less = ask(FigureSource(campaign=campaign, trials=fewer, belief=belief)).standing
    assert less is not None
    assert less.untried > first.untried
