"""The figure of knobs against what was planted into their starts."""

from __future__ import annotations

import pytest

from autotune.schemas.knobs import KnobResult
from server.figures.kinds import missing
from server.figures.knobs import KnobsFigure
from server.figures.source import FigureSource
from tests.server.dashboard.campaigns import WITH_KNOBS
from tests.server.figures.conftest import Stages
from tests.server.figures.scene import drawn_words


@pytest.fixture(scope="module")
def figure(tuned: FigureSource) -> KnobsFigure:
    return KnobsFigure.of(tuned)


def named(figure: KnobsFigure, knob: str, value: object) -> KnobResult:
    return next(e for e in figure.findings.results if (e.knob, e.value) == (knob, value))


def test_gains_are_those_planted_with_the_largest_first(figure: KnobsFigure) -> None:
    found = figure.findings
    gains = [each.gain or 0.0 for each in found.results]
    assert gains == sorted(gains, reverse=True)
    off = named(figure, "overlap", False)
    assert off.gain == pytest.approx(0.041, abs=0.002)
    assert off.gain_at_other_size == pytest.approx(-0.026, abs=0.002)
    assert (found.other_micro_batch_size, off.sign_differs) == (1, True)
    assert found.gain == pytest.approx(0.059, abs=0.002)
    rows = figure.chart()["datasets"]["rows"]
    assert rows[-1]["label"] == "used together: overlap = off, reduce_bucket = 50000000"
    assert [row["gain"] for row in rows] == [*(each.gain for each in found.results), found.gain]
    for row in rows:
        if row["gain"] is not None:
            assert row["gain_low"] - 1e-4 <= row["gain"] <= row["gain_high"] + 1e-4


def test_what_was_rejected_says_why_on_the_chart(figure: KnobsFigure) -> None:
    lossy = named(figure, "reduce_bucket", 90000000)
    failed = named(figure, "allgather_bucket", 1000000000)
    assert (lossy.decision, failed.decision, failed.gain) == ("rejected", "rejected", None)
    words = [word.text for word in drawn_words(figure.chart(), width=760)]
    assert "allgather_bucket = 1000000000: rejected. A start failed." in words
    assert "no gain measured" in words
    assert any(
        word.startswith("reduce_bucket = 90000000: rejected. The loss of step 6") for word in words
    )


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
    assert noise == f"Differences below {100 * figure.noise_floor:.1f} % are noise (the band)."
    assert len(figure.table.rows) == len(figure.findings.results)


def test_without_a_start_with_a_knob_there_is_none(stages: Stages) -> None:
    campaign = stages.running(**WITH_KNOBS)
    [layout] = stages.strategies(campaign, 1, fitting=True)
    for purpose in ("search", "knob"):
        stages.measured(campaign, layout, purpose, 10.0)
    source = stages.source(campaign)
    assert source.recommendation is not None
    assert source.recommendation.knobs is None
    assert missing("knobs", source).endswith("no start of the best layout with one has ended")
