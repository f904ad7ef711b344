"""A campaign of knobs, driven from its rows on a machine whose gains are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from autotune.knobs.decision import KnobReport, KnobVerdict, next_starts, report
from autotune.knobs.question import (
    BASELINE,
    KnobOption,
    KnobQuestion,
    KnobStart,
    PlannedStart,
    Settings,
)
from search_spaces.errors import InvalidInput

LOSSES = (10.5, 10.4, 10.2, 9.9)
OPTIONS = tuple(
    KnobOption(knob=name, value=True, numerics="reordered") for name in ("a", "b", "c", "d", "e")
)
QUESTION = KnobQuestion(
    options=OPTIONS, micro_batch_sizes=(2,), start_node_hours=1.0, training_node_hours=5000.0
)


class Machine:
    """A step of 1 s, faster by the gains of its knobs, with noise that depends on the start."""

    def __init__(self, gains: Mapping[str, float], *, noise: float = 0.002) -> None:
        self.gains, self.noise = gains, noise

    def started(self, start: PlannedStart, number: int) -> KnobStart:
        gain = sum(self.gain(knob, start) for knob, _ in start.settings)
        wobble = np.random.default_rng(number).standard_normal()
        return KnobStart(
            settings=start.settings,
            micro_batch_size=start.micro_batch_size,
            iteration_time_s=float(np.exp(self.noise * wobble - gain)),
            timed_steps=10,
            losses=LOSSES,
        )

    def gain(self, knob: str, start: PlannedStart) -> float:  # noqa: ARG002
        return self.gains.get(knob, 0.0)


def campaign(machine: Machine, question: KnobQuestion = QUESTION) -> list[KnobStart]:
    rows: list[KnobStart] = []
    while planned := next_starts(rows, question):
        rows.extend(machine.started(start, len(rows) + i) for i, start in enumerate(planned))
        assert len(rows) < 500
    return rows


def by_knob(found: KnobReport) -> dict[str, KnobVerdict]:
    return {verdict.option.knob: verdict for verdict in found.verdicts}


def decisions(found: KnobReport) -> dict[str, str]:
    return {knob: verdict.decision for knob, verdict in by_knob(found).items()}


def starts_of(rows: Sequence[KnobStart], settings: Settings) -> int:
    return sum(row.settings == settings for row in rows)


def test_the_first_round_has_each_option_once_among_baselines() -> None:
    first = [start.settings for start in next_starts([], QUESTION)]
    assert sorted(first) == sorted([*[BASELINE] * 3, *(o.settings for o in OPTIONS)])
    assert (first[0], first[-1]) == (BASELINE, BASELINE)


def test_knobs_that_help_are_adopted_and_others_rejected() -> None:
    rows = campaign(Machine({"b": 0.03, "d": -0.05}))
    found = report(rows, QUESTION)
    assert decisions(found) == dict.fromkeys("acde", "rejected") | {"b": "adopted"}
    assert found.settings == (("b", True),)
    effect = by_knob(found)["b"].effect
    assert effect is not None
    assert effect.gain == pytest.approx(0.03, abs=0.005)
    assert starts_of(rows, (("b", True),)) == effect.starts >= 2
    assert starts_of(rows, (("d", True),)) == 1
    assert found.noise_floor is not None
    assert 0.002 < found.noise_floor < 0.015


def test_what_is_rejected_so_far_has_its_reason() -> None:
    lasting = replace(QUESTION, training_node_hours=1e9)
    machine, rows = Machine({"d": -0.05}), list[KnobStart]()
    for start in next_starts([], lasting):
        rows.append(machine.started(start, len(rows)))
    for verdict in report(rows, lasting).verdicts:
        assert (verdict.decision == "rejected") == ("Not measured" not in verdict.why), verdict


def test_survivors_are_confirmed_together_in_turns() -> None:
    rows = campaign(Machine({"a": 0.03, "b": 0.05}))
    found = report(rows, QUESTION)
    both = (("a", True), ("b", True))
    assert [row.settings for row in rows[-4:]] == [BASELINE, both, both, BASELINE]
    assert found.settings == both
    assert found.together is not None
    assert found.together.gain == pytest.approx(0.083, abs=0.01)


class Quarrel(Machine):
    def gain(self, knob: str, start: PlannedStart) -> float:
        return -0.01 if len(start.settings) > 1 else super().gain(knob, start)


def test_a_combination_that_loses_gives_way_to_the_best() -> None:
    found = report(campaign(Quarrel({"a": 0.03, "b": 0.05})), QUESTION)
    assert (decisions(found)["a"], found.settings) == ("adopted", (("b", True),))


def test_of_two_values_of_a_knob_the_better_is_used() -> None:
    options = tuple(KnobOption(knob="b", value=v, numerics="identical") for v in (1, 2))
    question = replace(QUESTION, options=options)
    rows = campaign(Machine({"b": 0.05}), question)
    assert len(report(rows, question).settings) == 1


def test_the_next_starts_follow_from_the_rows() -> None:
    """Whether a runner makes a whole batch, or asks after each start and was interrupted."""
    machine, rows = Machine({"b": 0.03}), list[KnobStart]()
    while planned := next_starts(rows, QUESTION):
        assert planned == next_starts(list(rows), QUESTION)
        rows.append(machine.started(planned[0], len(rows)))
    assert decisions(report(rows, QUESTION))["b"] == "adopted"
    assert next_starts([], QUESTION) != next_starts([], replace(QUESTION, seed=1))


def test_a_longer_training_is_worth_more_starts() -> None:
    machine = Machine({"b": 0.008}, noise=0.006)
    counts = [
        len(campaign(machine, replace(QUESTION, training_node_hours=hours)))
        for hours in (10.0, 1e3, 1e6)
    ]
    assert counts[0] == len(next_starts([], QUESTION)) < counts[1] < counts[2]


def test_without_a_training_likely_gains_are_measured_again() -> None:
    question = replace(QUESTION, training_node_hours=None)
    found = report(campaign(Machine({"b": 0.02}), question), question)
    assert decisions(found) == dict.fromkeys("acde", "rejected") | {"b": "adopted"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"losses": (10.5, 10.4, 10.3, 9.9)}, "The loss of step 3 differs by 0.01"),
        ({"iteration_time_s": None}, "A start failed."),
    ],
)
def test_a_fast_knob_with_a_fault_is_rejected(change: dict[str, object], reason: str) -> None:
    class Faulty(Machine):
        def started(self, start: PlannedStart, number: int) -> KnobStart:
            row = super().started(start, number)
            return replace(row, **change) if start.settings == (("b", True),) else row  # type: ignore[arg-type]

    rows = campaign(Faulty({"b": 0.1}))
    found = report(rows, QUESTION)
    assert (decisions(found)["b"], starts_of(rows, (("b", True),))) == ("rejected", 1)
    assert by_knob(found)["b"].why.startswith(reason)
    assert found.settings == BASELINE


def test_without_a_baseline_nothing_is_decided() -> None:
    class Broken(Machine):
        def started(self, start: PlannedStart, number: int) -> KnobStart:
            row = super().started(start, number)
            return row if start.settings else replace(row, iteration_time_s=None)

    found = report(campaign(Broken({"b": 0.1})), QUESTION)
    assert set(decisions(found).values()) == {"not decided"}
    assert all("No start without knobs" in verdict.why for verdict in found.verdicts)
    assert found.noise_floor is None


class Reopening(Machine):
    def gain(self, knob: str, start: PlannedStart) -> float:
        return super().gain(knob, start) * (1 if start.micro_batch_size == 2 else -1)


def test_a_sign_that_depends_on_the_micro_batch_is_shown() -> None:
    options = (replace(OPTIONS[0], reopens=True), replace(OPTIONS[1], reopens=True), *OPTIONS[2:])
    question = replace(QUESTION, options=options, micro_batch_sizes=(2, 4))
    rows = campaign(Reopening({"a": -0.04}), question)
    elsewhere = [row.settings for row in rows if row.micro_batch_size == 4]
    assert {knob for settings in elsewhere for knob, _ in settings} == {"a", "b"}
    found = by_knob(report(rows, question))
    assert {knob for knob, verdict in found.items() if verdict.sign_differs} == {"a"}
    assert found["a"].decision == "rejected"


@pytest.mark.parametrize(
    ("change", "field"),
    [({"timed_steps": 500}, "timed_steps"), ({"iteration_time_s": 0.0}, "iteration_time_s")],
)
def test_rows_that_cannot_be_compared_are_refused(change: dict[str, float], field: str) -> None:
    row = Machine({}).started(PlannedStart(settings=BASELINE, micro_batch_size=2), 0)
    with pytest.raises(InvalidInput) as caught:
        next_starts([row, replace(row, **change)], QUESTION)  # type: ignore[arg-type]
    assert caught.value.field == field
