"""The figure of knobs against what was planted into their starts."""

from __future__ import annotations

import pytest

from server.figures.kinds import missing
from server.figures.knobs import KnobGain, KnobsFigure
from server.figures.source import FigureSource
from tests.server.dashboard.campaigns import WITH_KNOBS
from tests.server.figures.conftest import Stages
from tests.server.figures.scene import drawn_words


@pytest.fixture(scope="module")
def figure(tuned: FigureSource) -> KnobsFigure:
    return KnobsFigure.of(tuned)


def named(figure: KnobsFigure, name: str) -> KnobGain:
    return next(each for each in figure.gains if each.name == name)


def test_gains_are_those_planted_with_the_largest_first(figure: KnobsFigure) -> None:
    *single, together = figure.gains
    assert [each.gain or 0.0 for each in single] == sorted(
        (each.gain or 0.0 for each in single), reverse=True
    )
    off = named(figure, "overlap = off")
    assert off.gain == pytest.approx(4.1, abs=0.2)
    assert off.at_other_size == pytest.approx(-2.6, abs=0.2)
    assert (figure.other_micro_batch_size, off.sign_differs) == (1, True)
    assert together.decision == "used together"
    assert together.name == "overlap = off, reduce_bucket = 50000000"
    assert together.gain == pytest.approx(5.9, abs=0.2)
    for each in figure.gains:
        if each.gain is not None:
            assert each.low is not None
            assert each.high is not None
            assert each.low - 0.01 <= each.gain <= each.high + 0.01


def test_what_was_rejected_says_why_on_the_chart(figure: KnobsFigure) -> None:
    lossy, failed = (
        named(figure, name)
        for name in ("reduce_bucket = 90000000", "allgather_bucket = 1000000000")
    )
    assert (lossy.decision, failed.decision, failed.gain) == ("rejected", "rejected", None)
    words = [word.text for word in drawn_words(figure.chart(), width=760)]
    assert "allgather_bucket = 1000000000: rejected. A start failed." in words
    assert "no gain measured" in words
    assert any(word.startswith(f"{lossy.name}: rejected. The loss of step 6") for word in words)


def test_decisions_differ_by_shape_and_by_colour(figure: KnobsFigure) -> None:
    [mark] = [each for each in figure.chart()["layer"] if each["data"]["name"] == "known"][-1:]
    colour, shape = (mark["encoding"][channel]["scale"] for channel in ("color", "shape"))
    assert colour["domain"] == ["adopted", "rejected", "used together", "at MBS 1"]
    assert len(set(colour["range"])) == len(set(shape["range"])) == 4


def test_the_caption_has_what_to_use_its_cost_and_the_noise(figure: KnobsFigure) -> None:
    use, took, noise = figure.caption.split(". ")
    assert use.startswith("Use overlap = off and reduce_bucket = 50000000: 5.9 % faster (80 %: ")
    assert took == "21 starts took 1.40 node-hours"
    assert figure.noise_floor is not None
    assert noise == f"Differences below {figure.noise_floor:.1f} % are noise (the band)."
    assert len(figure.table.rows) == len(figure.gains) - 1


def test_without_a_start_with_a_knob_there_is_none(stages: Stages) -> None:
    campaign = stages.running(**WITH_KNOBS)
    [layout] = stages.strategies(campaign, 1, fitting=True)
    for purpose in ("search", "knob"):
        stages.measured(campaign, layout, purpose, 10.0)
    source = stages.source(campaign)
    assert source.recommendation is not None
    assert source.recommendation.knobs is not None
    assert missing("knobs", source).endswith("no start of the best layout with one has ended")
