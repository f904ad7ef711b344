"""How a recommendation stands in its space, as the service tells it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from fastapi import FastAPI

from autotune.recommendation import recommend
from autotune.schemas import Campaign, Recommendation, Trial
from server.api.standings import Standings
from server.store import Store
from server.store.trials import all_trials


def test_many_who_ask_are_told_the_same_and_it_is_worked_out_once(
    finished: tuple[FastAPI, Campaign],
) -> None:
    app, campaign = finished
    store: Store = app.state.store
    with store.session() as session:
        trials = all_trials(session, campaign.id)
    subject = Standings(store)

    def ask(known: list[Trial]) -> Recommendation:
        recommendation = recommend(campaign, known)
        assert recommendation is not None
        return subject.added_to(recommendation, campaign, known)

    with ThreadPoolExecutor(8) as pool:
        first, *others = (each.standing for each in pool.map(ask, [trials] * 8))
    assert first is not None
    assert all(other is first for other in others)
    assert first.sentence.startswith("Best of the space with ")
    assert first.neighbours
    assert Standings(store).added_to(ask(trials), campaign, trials).standing == first
    fewer = [trial for trial in trials if trial.number == ask(trials).best.trial_numbers[0]]
    less = ask(fewer).standing
    assert less is not None
    assert less.untried > first.untried
