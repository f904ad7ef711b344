"""Trials against regret, a line for each method, to be read on light and on dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune.cost_model.columns import Array
from tests.benchmarks.replay.methods import METHODS, Replays
from tests.benchmarks.replay.trials import Replay

MOST_TRIALS = 30
LEAST_REGRET = 0.005
"""Below it lines leave the picture: a search is there at 1 %."""

NONE = 1e-9
"""No regret at all, on a logarithmic axis."""

INK = "#7d8590"
"""Of text and axes: as far from white as from a dark page."""

LINES = {
    "ours": ("ours", "#2f81f7", (1, 0)),
    "ours_warm": ("ours, other models known", "#1a9c6e", (1, 0)),
    "ours_wrong": ("ours, wrong data sheet", "#2f81f7", (6, 3)),
    "ours_shuffled": ("ours, shuffled predictions", "#2f81f7", (2, 3)),
    "random": ("random", INK, (1, 0)),
    "pruned_grid": ("pruned grid", "#c2790a", (1, 0)),
    "optuna_tpe": ("Optuna TPE", "#c7599b", (1, 0)),
    "stock_deephyper": ("stock DeepHyper", "#d1453b", (1, 0)),
}
"""By method: its name for readers, its colour, and its dashes."""


def regret_svg(replays: Replays) -> str:
    """The mean over landscapes, each of which counts alike."""
    import vl_convert

    drawn: str = vl_convert.vegalite_to_svg(_chart(replays))
    return drawn


def _chart(replays: Replays) -> dict[str, Any]:
    import altair as alt

    rows = [
        {"method": LINES[name][0], "trial": trial, "regret": max(float(regret), NONE)}
        for name in METHODS
        for trial, regret in enumerate(_mean_regret(replays, name), start=1)
    ]
    names, colours, dashes = zip(*LINES.values(), strict=True)
    legend = alt.Legend(title=None, symbolStrokeWidth=2.5, symbolSize=250, labelLimit=0)
    chart = (
        alt.Chart(alt.NamedData("regrets"))
        .mark_line(interpolate="step-after", strokeWidth=2, clip=True)
        .encode(
            x=alt.X("trial:Q", title="trials", scale=alt.Scale(domain=[1, MOST_TRIALS])),
            y=alt.Y(
                "regret:Q",
                title="mean regret: what the best trial so far lacks",
                scale=alt.Scale(type="log", domain=[LEAST_REGRET, 1.0]),
                axis=alt.Axis(format="~%", values=[0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1]),
            ),
            color=alt.Color(
                "method:N", scale=alt.Scale(domain=names, range=colours), legend=legend
            ),
            strokeDash=alt.StrokeDash(
                "method:N", scale=alt.Scale(domain=names, range=dashes), legend=legend
            ),
        )
        .properties(width=560, height=320)
        .configure(
            background="transparent",
            font="system-ui, sans-serif",
            # Letters of the reader's own font are wider than those that were measured here.
            padding={"left": 5, "top": 5, "right": 40, "bottom": 5},
        )
        .configure_axis(
            labelColor=INK,
            titleColor=INK,
            gridColor=INK,
            gridOpacity=0.25,
            domainColor=INK,
            tickColor=INK,
            titleFontWeight="normal",
        )
        .configure_legend(labelColor=INK)
        .configure_view(stroke=None)
    )
    return {**chart.to_dict(), "datasets": {"regrets": rows}}


def _mean_regret(replays: Replays, method: str) -> Array:
    """Shape (MOST_TRIALS,), or () where the method has no replay."""
    each = [
        np.mean([_extended(one) for one in mine], axis=0)
        for by_method in replays.values()
        if (mine := by_method.get(method))
    ]
    return np.asarray(np.mean(each, axis=0)) if each else np.empty(0)


def _extended(one: Replay) -> Sequence[float]:
    """A search that has ended keeps what it found."""
    regrets = one.regrets[:MOST_TRIALS]
    return [*regrets, *[regrets[-1]] * (MOST_TRIALS - len(regrets))]
