"""Every kind of figure, for campaigns in every stage."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, get_args

import pytest
import vl_convert

from autotune.schemas.choices import FigureKind
from server.figures.figure import DrawnFigure
from server.figures.kinds import FigureOptions, made, missing, offer
from server.figures.source import FigureSource
from server.figures.vega import VEGA_LITE_VERSION, Scheme
from tests.server.figures.conftest import Stages
from tests.server.figures.scene import words_on_page

KINDS: tuple[FigureKind, ...] = get_args(FigureKind)


@cache
def figure(source: FigureSource, kind: FigureKind) -> DrawnFigure:
    return made(kind, source, FigureOptions())


def compiled(source: FigureSource, kind: FigureKind, scheme: Scheme = "light") -> str:
    """The picture of a figure, drawn."""
    picture = figure(source, kind).picture(scheme=scheme)
    drawn: str = vl_convert.vegalite_to_svg(picture, vl_version=VEGA_LITE_VERSION)
    return drawn


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_campaign_has_every_figure(
    finished: FigureSource, kind: FigureKind, scheme: Scheme
) -> None:
    assert offer(kind, finished).missing == ""
    made = figure(finished, kind)
    assert made.kind == kind
    assert made.caption.endswith(".")
    assert made.table.rows
    assert all(len(row) == len(made.table.columns) for row in made.table.rows)
    drawn = compiled(finished, kind, scheme)
    assert ("(simulated)" in drawn) is finished.campaign.simulated
    assert made.caption.split()[0] in drawn
    json.dumps(made.described_chart(scheme=scheme), allow_nan=False)


@pytest.mark.parametrize("kind", KINDS)
def test_marks_show_what_their_rows_have(finished: FigureSource, kind: FigureKind) -> None:
    spec = figure(finished, kind).chart()
    for drawn in spec["layer"]:
        rows = spec["datasets"][drawn["data"]["name"]]
        made = {name for step in drawn.get("transform", []) for name in step.get("as", [])}
        made |= {step["as"] for step in drawn.get("transform", []) if "calculate" in step}
        for field in fields_of(drawn["encoding"]) - made:
            assert all(field in row for row in rows), (drawn["mark"]["type"], field)


def fields_of(encoding: Any) -> set[str]:
    """The fields that channels of an encoding take."""
    parts = [part if isinstance(part, list) else [part] for part in encoding.values()]
    channels = [channel for part in parts for channel in part]
    return {channel["field"] for channel in channels if "field" in channel}


@pytest.mark.parametrize("kind", KINDS)
def test_no_word_is_cut_on_a_phone(finished: FigureSource, kind: FigureKind) -> None:
    width = 336
    for word in words_on_page(figure(finished, kind).chart(), width=width):
        start, end = word.ends
        assert word.angle or (start >= 0 and end <= width), word


@pytest.mark.parametrize("kind", KINDS)
def test_a_campaign_without_trials_has_none_and_says_why(
    empty: FigureSource, kind: FigureKind
) -> None:
    assert missing(kind, empty).startswith("no trial ")


FROM_FAILURES: set[FigureKind] = {"trajectory", "map", "parallel", "calibration"}
OF_DIFFERENCES: dict[FigureKind, str] = {
    "pareto": "the layouts that ran differ in neither nodes nor energy",
    "parallel": "its trials differ in no dimension",
    "knobs": "no knobs were tried: the campaign has none",
}


@pytest.mark.parametrize("kind", KINDS)
def test_failures_alone_are_drawn_where_they_tell_something(
    failed: FigureSource, kind: FigureKind
) -> None:
    assert (missing(kind, failed) == "") == (kind in FROM_FAILURES)
    if kind in FROM_FAILURES:
        assert "out of memory" in compiled(failed, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_one_trial_is_enough_but_for_differences(single: FigureSource, kind: FigureKind) -> None:
    assert missing(kind, single) == OF_DIFFERENCES.get(kind, "")
    if kind not in OF_DIFFERENCES:
        assert "<svg" in compiled(single, kind)


@pytest.mark.parametrize("kind", ["trajectory", "parallel", "calibration"])
def test_many_trials_are_drawn(many: FigureSource, kind: FigureKind) -> None:
    assert "<svg" in compiled(many, kind)


def test_a_space_of_one_strategy_differs_in_nothing(stages: Stages) -> None:
    one = {
        "tensor_parallel": [8],
        "pipeline_parallel": [1],
        "micro_batch_size": [1],
        "gradient_accumulation_steps": [8],
        "zero_stage": [1],
        "num_nodes": [4],
        "activation_checkpointing": ["full"],
        "sequence_parallel": [False],
        "flash_attention": [True],
        "virtual_stages": [1],
        "precision": ["bf16"],
    }
    source = stages.source(stages.running(ok=1, space=one))
    assert figure(source, "impact").caption == "The layouts of this space do not differ."
    assert "<svg" in compiled(source, "impact")
