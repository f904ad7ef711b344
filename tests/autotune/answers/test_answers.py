"""Figures in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from autotune.answers.campaign import model_size, not_started, started_from, surrogate_start
from autotune.answers.layout import in_words, utilisation
from autotune.answers.recommendation import (
    knob_sentence,
    runner_up_with_knobs,
    saved,
    training_energy,
)
from autotune.answers.trial import step_spread, trial_facts, why_chosen
from autotune.schemas.campaigns import StartedFrom, StartWorth
from autotune.schemas.knobs import KnobFindings
from autotune.schemas.recommendations import TrainingCost, TrainingSaving
from autotune.schemas.wire import TrialPurpose
from autotune.words.quantities import age, axis_unit, duration, figure, parameters, plural, seconds
from search_spaces.catalog import load_machine, load_model
from tests.autotune.recommendation.examples import A, B, answer, campaign, trial
from tests.server.asking import EXPECTED, STRATEGY, campaign_request

FIGURES = {
    None: "–",
    0.0: "0",
    0.01234: "0.0123",
    1.2345: "1.23",
    12.345: "12.3",
    12.0: "12",
    1234.5: "1,234",
    2.5e9: "2,500,000,000",
}
DURATIONS = {
    None: "–",
    4.25: "4.2 s",
    59.0: "59 s",
    59.8: "1 min",
    200.0: "3 min 20 s",
    3600.0: "1 h",
    3900.0: "1 h 5 min",
    2 * 86400 + 3 * 3600.0: "2 d 3 h",
    1500.5 * 86400: "1,500 d",
}
SECONDS = {0.0123: "12.3 ms", 0.5: "500 ms", 1.5: "1.50 s", 20.25: "20.2 s"}
AXES = {10.0: "seconds", 600.0: "minutes", 20_000.0: "hours", 1e6: "days"}


@pytest.mark.parametrize(
    ("words_of", "words"),
    [
        (figure, FIGURES),
        (duration, DURATIONS),
        (seconds, SECONDS),
        (lambda longest_s: axis_unit(longest_s)[0], AXES),
    ],
)
def test_numbers(words_of: Callable[[Any], str], words: dict[float | None, str]) -> None:
    assert {value: words_of(value) for value in words} == words


def test_age() -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    ages = [timedelta(seconds=5), timedelta(minutes=7), timedelta(hours=30), timedelta(days=9)]
    words = [age(now - passed, now=now) for passed in ages]
    assert words == ["just now", "7 min ago", "1 d ago", "9 d ago"]


def test_sizes_and_plurals() -> None:
    assert [parameters(n) for n in (12_345, 345e6, 22.1e9, 1.01e12)] == [
        "12.3K",
        "345M",
        "22.1B",
        "1.01T",
    ]
    assert model_size(load_model("llama-3-70b")) == "70.6B parameters"
    assert model_size(load_model("deepseek-v3")) == "671B parameters, 37.6B active"
    assert (plural(1, "trial"), plural(1200, "trial")) == ("1 trial", "1,200 trials")


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        ({"": 2}, "2 trials not started yet"),
        ({"held by the user (JobHeldUser)": 1}, "1 trial not started yet: held by the user"),
        ({"": 1, "held": 2}, "3 trials not started yet: held"),
        ({"held": 2, "waiting": 3, "": 1}, "6 trials not started yet: 3 × waiting, 2 × held"),
        (
            {"a": 1, "b": 5, "c": 4, "d": 3},
            "13 trials not started yet: 5 × b, 4 × c, 3 × d, 1 other reason",
        ),
    ],
)
def test_trials_that_have_not_started(reasons: dict[str, int], words: str) -> None:
    assert not_started(reasons).startswith(words)


def starts(*trials: int, deleted: bool = False) -> list[StartedFrom]:
    return [
        StartedFrom(campaign_id=number, name="", trials=count, deleted=deleted)
        for number, count in enumerate(trials, start=2)
    ]


def test_what_a_campaign_started_from() -> None:
    assert started_from(campaign()) == ""
    fresh = campaign(started_from=[], request=campaign_request(fresh=True))
    assert started_from(fresh) == "scratch, as requested"
    none = started_from(campaign(started_from=[]))
    assert none == "scratch: no earlier trials match"
    two = started_from(campaign(started_from=starts(30, 4)))
    assert two == "34 trials of campaigns 2 and 3"
    gone = started_from(campaign(started_from=starts(1, deleted=True)))
    assert gone == "1 trial of campaign 2 (deleted)"
    many = started_from(campaign(started_from=starts(9, 8, 7, 6, 5)))
    assert many == "35 trials of campaigns 2, 3, 4 and 2 others"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (0.06, "they reduced the prediction error from 21 % to 6.0 %"),
        (
            4.8,
            "they did not help",
        ),
    ],
)
def test_what_that_was_worth(given: float, words: str) -> None:
    worth = StartWorth(trials=12, error_without=0.21, error_with=given)
    sentence = started_from(campaign(started_from=starts(30), start_worth=worth))
    assert sentence == f"30 trials of campaign 2; {words}"


PREDICTED = "Predicted 12 % above the best so far (80 %: -3 to +28 %)"
TIMED = "Predicted 1 s (80 %: 875 ms to 1.15 s) per iteration"
NOTHING_MEASURED = {"best_so_far": None, "probability_better": None}


@pytest.mark.parametrize(
    ("purpose", "changes", "words"),
    [
        (
            "search",
            {},
            f"Highest expected gain per node-hour. {PREDICTED}, 80 % likely to be better; 93 %",
        ),
        ("search", {"best_so_far": 1.4e6}, "gain per node-hour. Predicted 20 % below the best so"),
        ("search", {"best_so_far": 1.28e6}, "(80 %: -24 to 0 %), 80 %"),
        ("search", {"best_so_far": 1.12e6}, "Predicted the same as the best so far (80 %: -13 to"),
        ("search", NOTHING_MEASURED, f"before any measurement. {TIMED}; 93 % likely to fit;"),
        ("baseline", NOTHING_MEASURED, f"The baseline. {TIMED}; 93 %"),
        (
            "confirmation",
            {},
            f"Confirmation of one of the best layouts. {PREDICTED}; 93 % likely to fit;",
        ),
        ("search", {"chosen_by": "random"}, f"Chosen at random. {PREDICTED}"),
        ("search", {"chosen_by": "surrogate"}, f"Chosen by DeepHyper's surrogate. {PREDICTED}"),
        ("search", {"fit_probability": 0.001}, "; < 1 % likely to fit; about 0.4 node-hours."),
    ],
)
def test_why_a_trial_was_chosen(purpose: TrialPurpose, changes: dict[str, Any], words: str) -> None:
    expected = EXPECTED.model_copy(update=changes)
    chosen = trial(1, A, seconds=1.0, purpose=purpose)
    update = {"expected": expected, "predicted_iteration_time_s": 1.0}
    assert words in why_chosen(chosen.model_copy(update=update))


def test_since_when_deephypers_surrogate_chooses() -> None:
    deephyper = campaign_request(search="deephyper")
    assert surrogate_start(campaign()) == ""
    assert surrogate_start(campaign(request=deephyper, trials=0)) == ""
    before = surrogate_start(campaign(request=deephyper, trials=13))
    assert before == "has not chosen a trial yet: all are initial points"
    since = surrogate_start(campaign(request=deephyper, trials=14, surrogate_from=14))
    assert since == "chose from trial 14 on, after its initial points"


def test_a_layout_is_put_into_words_without_its_abbreviations() -> None:
    machine = load_machine("frontier")
    assert in_words(STRATEGY, machine) == (
        "Each layer is split over 2 GPUs; the layers form 4 pipeline stages; "
        "2 replicas of the model train in parallel, 8 micro-batches of 1 sample per step each."
    )
    alone = replace(STRATEGY, tensor_parallel=1, pipeline_parallel=16, micro_batch_size=2)
    text = in_words(alone, machine)
    assert text.startswith("No layer is split; the layers form 16 pipeline stages")
    assert "there is one replica of the model, 8 micro-batches of 2 samples" in text


def test_the_energy_of_a_training_names_what_it_counts() -> None:
    both = TrainingCost(
        tokens=4.4e11,
        iterations=1,
        days=1.0,
        node_hours=1.0,
        energy_mwh=112.0,
        gpu_energy_mwh=70.0,
        energy_sampled=True,
    )
    alone = both.model_copy(update={"energy_mwh": None, "energy_sampled": False})
    neither = alone.model_copy(update={"gpu_energy_mwh": None})
    assert [training_energy(each) for each in (both, alone, neither)] == [
        "112 MWh, hosts included (sampled at the GPUs); 70 MWh (252 GJ) without hosts",
        "70 MWh (252 GJ) without hosts (predicted)",
        "",
    ]


def test_what_is_saved_and_what_is_taken_more_are_named() -> None:
    saving = TrainingSaving(
        tokens=1e12, days=2.0, node_hours=-300.0, energy_mwh=None, repaid_after_tokens=None
    )
    assert saved(saving) == "saves 2 d and takes 300 node-hours more"
    both = saving.model_copy(update={"node_hours": 300.0, "energy_mwh": 1.5})
    assert saved(both) == "saves 2 d, 300 node-hours and 1.50 MWh"


def test_knobs_to_use_are_named_with_their_gain() -> None:
    nothing = KnobFindings(strategy=A, starts=3, node_hours=1.5, results=[])
    assert knob_sentence(nothing) == "None of the knobs that were tried is adopted."
    changed = {"settings": {"overlap": False, "bucket": 5}, "gain": 0.031}
    found = nothing.model_copy(update=changed | {"gain_low": -1e-5, "gain_high": 0.04})
    words = "Use overlap = off and bucket = 5: 3.1 % faster (80 %: 0.0 % to 4.0 %)."
    assert knob_sentence(found) == words


def test_a_runner_up_that_its_knobs_put_ahead_is_named() -> None:
    found = KnobFindings(strategy=A, starts=3, node_hours=1.5, results=[], gain=0.0)
    second = found.model_copy(update={"strategy": B, "settings": {"bucket": 5}, "gain": 0.05})
    plain = answer([trial(1, A, seconds=1.0), trial(2, B, seconds=2.0)])
    (behind,) = plain.runners_up
    level = [behind.model_copy(update={"relative_to_best": 0.99})]
    both = {"knobs": found, "runner_up_knobs": second, "noise_floor": 0.01}
    ahead = runner_up_with_knobs(plain.model_copy(update=both | {"runners_up": level}))
    assert "rank 2 is 4.0 % faster than the best with its own: " in ahead
    assert "bucket 5" in ahead
    assert not runner_up_with_knobs(plain.model_copy(update=both))
    assert not runner_up_with_knobs(plain)


def test_a_spread_of_half_a_step_is_no_error_of_a_measurement() -> None:
    metrics = trial(1, A, seconds=0.435).metrics
    assert metrics is not None
    steady = metrics.model_copy(update={"iteration_time_spread_s": 0.012})
    assert step_spread(steady) == "± 12 ms"
    uneven = steady.model_copy(update={"iteration_time_spread_s": 0.462})
    assert step_spread(uneven) == "(uneven: iterations differ by 106%)"


def test_utilisation_below_16_bits_names_its_peak() -> None:
    assert utilisation(0.41, A) == "41.0 %"
    narrow = replace(A, precision="mxfp8")
    assert utilisation(0.71, narrow) == "71.0 % of the 16-bit peak"
    assert utilisation(None, narrow) == "–"
    run = trial(1, A, seconds=1.0).model_copy(update={"strategy": narrow})
    assert dict(trial_facts(run, load_machine("frontier")))["Model FLOPs"].endswith(
        " % of the 16-bit peak"
    )
