"""The knobs of a campaign, from rows of its trials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.knobs.phase import (
    at_size,
    knob_findings,
    knob_trials,
    next_start,
    repeated_noise,
    settings_on,
    starts_of,
    with_settings,
)
from autotune.knobs.question import BASELINE, KnobOption, KnobQuestion, KnobStart, Settings
from autotune.schemas.choices import TrialState
from autotune.schemas.knobs import KnobFindings
from autotune.schemas.trials import Trial
from search_spaces.knob import Knob
from search_spaces.strategy import Strategy
from tests.autotune.recommendation.examples import trial

LAYOUT = Strategy(
    tensor_parallel=2,
    pipeline_parallel=1,
    micro_batch_size=2,
    gradient_accumulation_steps=8,
    zero_stage=1,
    num_nodes=1,
    settings=(("kernel", "own"),),
)
KNOBS = {
    "overlap": Knob(meaning="", numerics="reordered", values=(True, False)),
    "bucket": Knob(meaning="", numerics="identical", values=(1, 2, 4), reopens=True),
    "precision": Knob(meaning="", numerics="identical", values=("bf16", "fp16")),
}
OFF: Settings = (("overlap", False),)
QUESTION = KnobQuestion(
    options=(
        KnobOption(knob="overlap", value=False, numerics="reordered"),
        KnobOption(knob="bucket", value=2, numerics="identical"),
    ),
    micro_batch_sizes=(2,),
    start_node_hours=0.1,
    training_node_hours=1000.0,
)


def start(number: int, settings: Settings, seconds: float, **changes: Any) -> Trial:
    size = changes.pop("micro_batch_size", 2)
    strategy = with_settings(at_size(LAYOUT, size), settings)
    figures = {
        "first_losses": changes.pop("first_losses", [10.0, 9.5]),
        "confirmed": changes.pop("confirmed", []),
    }
    made = trial(number, strategy, seconds=seconds, purpose="knob", **changes)
    if made.metrics is None:
        return made
    metrics = made.metrics.model_copy(update=figures)
    return made.model_copy(update={"metrics": metrics})


def rows_of(trials: list[Trial]) -> list[KnobStart]:
    return starts_of(knob_trials(trials, LAYOUT, KNOBS), timed_steps=3)


def found_in(*trials: Trial) -> KnobFindings:
    found = knob_findings(LAYOUT, trials, KNOBS, training_node_hours=1000.0)
    assert found is not None
    return found


def test_what_a_strategy_changes_on_a_layout() -> None:
    changed: Settings = (("bucket", 4), ("precision", "fp16"))
    assert settings_on(LAYOUT, LAYOUT, KNOBS) == BASELINE
    assert settings_on(LAYOUT, with_settings(LAYOUT, changed), KNOBS) == changed
    assert settings_on(LAYOUT, with_settings(at_size(LAYOUT, 4), OFF), KNOBS) == OFF
    assert settings_on(LAYOUT, replace(LAYOUT, zero_stage=2), KNOBS) is None
    assert settings_on(LAYOUT, with_settings(LAYOUT, (("kernel", "other"),)), KNOBS) is None


def test_another_size_keeps_the_global_batch() -> None:
    other = at_size(LAYOUT, 4)
    assert (other.micro_batch_size, other.gradient_accumulation_steps) == (4, 4)


def test_starts_are_planned_in_rounds_without_a_stored_plan() -> None:
    """Each round is finished as it was planned: the baseline first, in between and last."""
    made: list[Trial] = []
    while planned := next_start(rows_of(made), QUESTION):
        seconds = 0.9 if planned.settings == OFF else 1.0
        made.append(start(len(made) + 1, planned.settings, seconds))
    order = [settings for _, settings in knob_trials(made, LAYOUT, KNOBS)]
    assert [place for place, each in enumerate(order[:5]) if each == BASELINE] == [0, 2, 4]
    assert order.count(OFF) >= 2
    assert found_in(*made).settings == {"overlap": False}


def test_lost_starts_say_nothing() -> None:
    lost = start(1, OFF, 0.5, state=TrialState.NODE_FAIL)
    failed = start(2, OFF, 0.5, state=TrialState.OOM)
    assert [row.iteration_time_s for row in rows_of([lost, failed])] == [None]


def test_findings_name_gain_interval_and_cost() -> None:
    trials = [start(n, OFF if n % 2 else BASELINE, 0.9 if n % 2 else 1.0) for n in range(1, 7)]
    found = found_in(*trials)
    (overlap,) = found.results
    assert (overlap.knob, overlap.value, overlap.decision) == ("overlap", False, "adopted")
    assert overlap.gain == pytest.approx(1 / 0.9 - 1, abs=0.01)
    low, high = overlap.gain_low or 0.0, overlap.gain_high or 0.0
    assert 0.0 < low < (overlap.gain or 0.0) < high
    assert (found.gain, found.starts, overlap.seen_in) == (overlap.gain, 6, "time")
    assert found.launched == with_settings(LAYOUT, OFF)
    assert found.node_hours == pytest.approx(sum(t.node_hours or 0 for t in trials))


def test_losses_beyond_the_class_reject_the_fastest() -> None:
    trials = [start(n, BASELINE, 1.0) for n in (1, 2, 3)]
    trials += [start(n, (("bucket", 2),), 0.5, first_losses=[10.0, 9.4]) for n in (4, 5)]
    (bucket,) = found_in(*trials).results
    assert bucket.decision == "rejected"
    assert "loss of step 2" in bucket.why


def test_a_loss_that_is_no_number_rejects() -> None:
    trials = [start(n, BASELINE, 1.0) for n in (1, 2, 3)]
    trials.append(start(4, OFF, 0.9, first_losses=[10.0, None]))
    assert found_in(*trials).results[0].decision == "rejected"


def test_a_sign_that_depends_on_the_size_is_reported() -> None:
    bucket: Settings = (("bucket", 2),)
    trials = [start(n, BASELINE, 1.0) for n in (1, 2, 3)]
    trials += [start(n, bucket, 0.8) for n in (4, 5)]
    trials += [start(n, BASELINE, 0.9, micro_batch_size=4) for n in (6, 7, 8)]
    trials.append(start(9, bucket, 1.2, micro_batch_size=4))
    found = found_in(*trials)
    assert found.other_micro_batch_size == 4
    (result,) = found.results
    assert result.sign_differs
    assert result.gain_at_other_size is not None
    assert result.gain_at_other_size < -0.1


def test_a_faster_start_at_the_other_size_reopens_the_layout() -> None:
    bucket: Settings = (("bucket", 2),)
    trials = [start(n, BASELINE, 1.0) for n in (1, 2, 3)]
    trials += [start(n, bucket, 1.1) for n in (4, 5)]
    trials += [start(n, BASELINE, 1.0, micro_batch_size=4) for n in (6, 7, 8)]
    assert not found_in(*trials, start(9, bucket, 0.999, micro_batch_size=4)).reopened
    found = found_in(*trials, start(9, bucket, 0.8, micro_batch_size=4))
    assert found.reopened.startswith("At MBS 4 with bucket = 2 an iteration takes 0.8 s instead")


def test_memory_or_the_log_shows_that_a_knob_was_on() -> None:
    trials = [start(n, BASELINE, 1.0, peak=10.0) for n in (1, 2, 3)]
    quiet = start(4, (("bucket", 2),), 1.0, peak=10.05)
    fuller = start(5, (("bucket", 4),), 1.0, peak=12.0)
    seen = {each.value: each.seen_in for each in found_in(*trials, quiet, fuller).results}
    assert seen == {2: None, 4: "memory"}
    noisy = [start(7, BASELINE, 1.0, peak=11.0), start(8, BASELINE, 1.0, peak=9.8)]
    seen = {each.value: each.seen_in for each in found_in(*trials, *noisy, quiet, fuller).results}
    assert seen == {2: None, 4: None}
    echoed = start(6, (("bucket", 2),), 1.0, peak=10.05, confirmed=["bucket"])
    seen = {each.value: each.seen_in for each in found_in(*trials, echoed, fuller).results}
    assert seen == {2: "log", 4: "memory"}


def test_noise_is_known_from_equal_starts_only() -> None:
    once = trial(1, LAYOUT, seconds=1.0, purpose="confirmation")
    again = trial(2, LAYOUT, seconds=1.02, purpose="confirmation")
    search = trial(3, LAYOUT, seconds=1.5)
    assert repeated_noise([once, search]) is None
    wide, narrow = repeated_noise([once, again]), repeated_noise([once, once])
    assert wide is not None
    assert narrow is not None
    assert narrow < 0.01 < wide < 0.1


def test_before_a_knob_is_tried_nothing_is_found() -> None:
    rows = [start(1, BASELINE, 1.0), start(2, BASELINE, 1.0)]
    assert knob_findings(LAYOUT, rows, KNOBS, training_node_hours=None) is None
