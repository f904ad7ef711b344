"""Trials against regret, a line for each method, to be read on light and on dark pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.cost_model.columns import Array
from server.figures.vega import (
    SCHEMA,
    VEGA_LITE_VERSION,
    Spec,
    by_value,
    layer,
    nominal,
    quantitative,
)
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
    "ours_imported": ("ours, other models imported", "#0f5f43", (1, 0)),
    "ours_wrong": ("ours, wrong data sheet", "#2f81f7", (6, 3)),
    "ours_shuffled": ("ours, shuffled predictions", "#2f81f7", (2, 3)),
    "random": ("random", INK, (1, 0)),
    "pruned_grid": ("pruned grid", "#c2790a", (1, 0)),
    "optuna_tpe": ("Optuna TPE", "#c7599b", (1, 0)),
    "optuna_gp": ("Optuna GP", "#c7599b", (6, 3)),
    "pruned_deephyper": ("DeepHyper, pruned", "#d1453b", (1, 0)),
    "stock_deephyper": ("DeepHyper, defaults", "#d1453b", (6, 3)),
}
"""By method: its name for readers, its colour, and its dashes."""


def regret_svg(replays: Replays) -> str:
    """The mean over landscapes, each of which counts alike."""
    import vl_convert

    drawn: str = vl_convert.vegalite_to_svg(_chart(replays), vl_version=VEGA_LITE_VERSION)
    return drawn


def _chart(replays: Replays) -> Spec:
    rows = [
        {"method": LINES[name][0], "trial": trial, "regret": max(float(regret), NONE)}
        for name in METHODS
        for trial, regret in enumerate(_mean_regret(replays, name), start=1)
    ]
    names, colours, dashes = zip(*LINES.values(), strict=True)
    legend = {"title": None, "symbolStrokeWidth": 2.5, "symbolSize": 250, "labelLimit": 0}
    encoding = {
        "x": quantitative("trial", title="trials", scale={"domain": [1, MOST_TRIALS]}),
        "y": quantitative(
            "regret",
            title="mean regret: what the best trial so far lacks",
            scale={"type": "log", "domain": [LEAST_REGRET, 1.0]},
            axis={"format": "~%", "values": [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1]},
        ),
        "color": nominal("method", scale=by_value(names, colours), legend=legend),
        "strokeDash": nominal("method", scale=by_value(names, dashes), legend=legend),
    }
    lines = layer("line", "regrets", encoding, interpolate="step-after", strokeWidth=2, clip=True)
    config = {
        "background": "transparent",
        "font": "system-ui, sans-serif",
        # Letters of the reader's own font are wider than those that were measured here.
        "padding": {"left": 5, "top": 5, "right": 40, "bottom": 5},
        "axis": {
            **{f"{part}Color": INK for part in ("label", "title", "grid", "domain", "tick")},
            "gridOpacity": 0.25,
            "titleFontWeight": "normal",
        },
        "legend": {"labelColor": INK},
        "view": {"stroke": None},
    }
    sized = {"$schema": SCHEMA, "width": 560, "height": 320}
    return sized | lines | {"datasets": {"regrets": rows}, "config": config}


def _mean_regret(replays: Replays, method: str) -> Array:
    each = [
        np.mean([_extended(one) for one in mine], axis=0)
        for by_method in replays.values()
        if (mine := by_method.get(method))
    ]
    return np.asarray(np.mean(each, axis=0)) if each else np.empty(0)


def _extended(one: Replay) -> Sequence[float]:
    regrets = one.regrets[:MOST_TRIALS]
    return [*regrets, *[regrets[-1]] * (MOST_TRIALS - len(regrets))]
