"""The charts' specifications, the bundle that draws them, and the colours of pages."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
import vl_convert

from autotune.schemas.choices import TrialState
from server.dashboard.bundle import bundle_path
from server.dashboard.rendering import HERE
from server.figures.outcome import FAILURES, SHAPES, Outcome, colour_of, outcomes
from server.figures.trajectory import trajectory, trajectory_chart
from server.figures.vega import (
    HUES,
    PALETTES,
    VEGA_LITE_VERSION,
    Scheme,
    Spec,
    finish,
    layer,
    quantitative,
    series_channels,
)
from tests.server.contrast import contrast
from tests.server.figures.scene import drawn_words
from tests.server.figures.subjects import campaign, trial


def svg(spec: Spec) -> str:
    drawn: str = vl_convert.vegalite_to_svg(spec | {"width": 600}, vl_version=VEGA_LITE_VERSION)
    return drawn


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_outcome_is_drawn_in_its_colour(scheme: Scheme) -> None:
    states = [TrialState.OOM, TrialState.TIMEOUT, TrialState.CRASHED, TrialState.NODE_FAIL]
    trials = [trial(n, None, state=state) for n, state in enumerate(states, start=1)]
    trials += [trial(5, 100.0), trial(6, 120.0, purpose="confirmation")]
    drawn = svg(trajectory_chart(trajectory(campaign(), trials), scheme=scheme)).lower()
    marks = re.findall(r'aria-roledescription="point"[^>]*fill="(#[0-9a-f]{6})"', drawn)
    expected = {colour_of(outcome, PALETTES[scheme]).lower() for outcome in Outcome}
    assert set(marks) == expected
    assert len(marks) == len(trials)


def test_the_baseline_is_a_line_with_its_name() -> None:
    trials = [trial(1, 50.0, purpose="baseline"), trial(2, 100.0)]
    drawn = svg(trajectory_chart(trajectory(campaign(), trials)))
    assert drawn.count('stroke-dasharray="5,4"') == 1
    assert ">a default layout<" in drawn
    assert "stroke-dasharray" not in svg(trajectory_chart(trajectory(campaign(), trials[1:])))


def test_failures_differ_by_shape_and_by_colour() -> None:
    possible = outcomes(simulated=False)
    for palette in PALETTES.values():
        assert len({colour_of(outcome, palette) for outcome in possible}) == len(possible)
    assert len({SHAPES[outcome] for outcome in FAILURES}) == len(FAILURES)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hues_stand_out_from_the_card_and_labels_from_hues(scheme: Scheme) -> None:
    for colour in HUES[scheme].values():
        assert contrast(colour, PALETTES[scheme].card) >= 3.0
        assert max(contrast(colour, ink) for ink in ("#ffffff", "#000000")) >= 4.5
    assert len(set(HUES[scheme].values())) == len(HUES[scheme])


def test_charts_without_rows_are_still_charts() -> None:
    assert "<svg" in svg(trajectory_chart(trajectory(campaign(), [])))
    assert "<svg" in svg(trajectory_chart(trajectory(campaign(), [trial(1, None)])))


@pytest.mark.parametrize(("width", "columns"), [(300, 1), (560, 2), (1200, 3)])
def test_a_legend_is_as_wide_as_its_figure(width: int, columns: int) -> None:
    names = [f"frontier{n:05}.cluster.example.org" for n in range(3)]
    colour, dashes = series_channels("node", names, "light")
    drawn = {"x": quantitative("x"), "color": colour, "strokeDash": dashes}
    rows = [{"node": name, "x": number} for number, name in enumerate(names)]
    spec = finish([layer("line", "all", drawn)], PALETTES["light"], {"all": rows}, height=200)
    labels = [word for word in drawn_words(spec, width=width) if word.text in names]
    assert len(labels) == len(names)
    assert len({word.x for word in labels}) == columns
    assert all(word.x + word.length <= width for word in labels)


def test_bundle_is_built_once(tmp_path: Path) -> None:
    path = bundle_path(tmp_path / "cache")
    script = gzip.decompress(path.read_bytes()).decode()
    assert "window.vegaEmbed" in script
    before = path.stat().st_mtime_ns
    assert bundle_path(tmp_path / "cache") == path
    assert path.stat().st_mtime_ns == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_no_style_or_script_of_others_remains() -> None:
    files = [path for path in (HERE / "static").iterdir() if path.suffix in (".js", ".css")]
    assert files
    for path in files:
        assert "://" not in path.read_text()


def variables(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))


PAIRS = [
    (text, ground)
    for ground in ("ground", "card")
    for text in ("text", "faint", "accent", "danger", "good", "warn")
] + [
    ("on-accent", "accent"),
    ("accent", "accent-ground"),
    ("danger", "danger-ground"),
    ("good", "good-ground"),
    ("warn", "warn-ground"),
]


@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_text_stands_out_from_its_ground(text: str, ground: str) -> None:
    style = (HERE / "static" / "dashboard.css").read_text()
    light = variables(style.partition("@media (prefers-color-scheme: dark)")[0])
    dark = light | variables(style.partition("@media (prefers-color-scheme: dark)")[2])
    assert contrast(light[text], light[ground]) >= 4.5
    assert contrast(dark[text], dark[ground]) >= 4.5
