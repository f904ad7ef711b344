"""The best rate over two dimensions: measured or predicted, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from autotune.explanation.layout_map import layout_map, values_of
from autotune.measurement.objectives import OBJECTIVE_UNITS
from autotune.recommendation.ranking import Contender
from autotune.schemas.figures import FigureChoice, MapPlace, PlaceState
from autotune.words.dimensions import dimension_head, dimension_name, with_values_words
from autotune.words.quantities import figure, plural, probability
from search_spaces.dimensions import Scalar, in_order, setting_text
from search_spaces.errors import InvalidInput
from search_spaces.lattice import Lattice
from server.figures.figure import Cells, RateFigure, choice, rows_of, table_of, tooltip
from server.figures.source import FigureSource
from server.figures.vega import PALETTES, Scheme, Spec, by_value, finish, layer, nominal, ordinal

USUAL_AXES = ("tensor_parallel", "pipeline_parallel")
"""Dimensions that a map can always be over; others only if the space varies them."""

MOST_VALUES = 16
"""Maximum number of values of such a dimension."""

CELL_PX = 56
RATE_PX = 48
"""Minimum width of a cell with its rate."""
MARK_DOWN_PX = 12
"""Distance of a cell's mark below its centre, where its rate is written."""

HEAT = {"light": ("#edf4fb", "#6aaede"), "dark": ("#18293a", "#2f6d9e")}
"""Colours of the lowest and of the highest rate; text and marks contrast with both."""

WORDS: Mapping[PlaceState, str] = {
    "measured": "measured",
    "predicted": "predicted, not run",
    "out_of_memory": "out of memory",
    "too_large": "predicted not to fit",
}
SHAPES: Mapping[PlaceState, str] = {
    "measured": "circle",
    "predicted": "circle",
    "out_of_memory": "triangle-down",
    "too_large": "triangle-down",
}
LABELS = {"micro_batch_size": "micro-batch", "num_nodes": "nodes"}
HOLLOW = frozenset({"predicted", "too_large"})
BAD = frozenset({"out_of_memory", "too_large"})


class LayoutMapFigure(RateFigure):
    """The best rate for each pair of values, TP and PP by default, that has a legal strategy."""

    named = "Best rate by TP and PP"
    shows = "what ran, ran out of memory, or is predicted"
    rests_on = "space"
    filters = ("x", "y", "micro_batch_size", "num_nodes")

    kind: Literal["map"] = "map"
    """Kind of figure."""
    x: str
    """Dimension of the horizontal axis."""
    y: str
    """Dimension of the vertical axis."""
    micro_batch_size: int | None
    """Selected micro-batch size; null for all."""
    num_nodes: int | None
    """Selected number of nodes; null for all."""
    micro_batch_sizes: list[int]
    """Micro-batch sizes to select from."""
    nodes: list[int]
    """Numbers of nodes to select from."""
    cells: list[MapPlace]
    """The cells."""

    @classmethod
    def of(
        cls,
        source: FigureSource,
        *,
        x: str = USUAL_AXES[0],
        y: str = USUAL_AXES[1],
        micro_batch_size: int | None = None,
        num_nodes: int | None = None,
    ) -> LayoutMapFigure:
        """Raise InvalidInput if the space lacks the micro-batch size or the number of nodes, or
        does not vary a dimension."""
        request, belief = source.campaign.request, source.belief
        lattice = belief.space.lattice()
        sizes, nodes = (np.unique(lattice[name]).tolist() for name in LABELS)
        axes = _offered(lattice)
        _check_axis("x", x, axes, other=y)
        _check_axis("y", y, axes, other=x)
        _check("micro_batch_size", micro_batch_size, sizes)
        _check("num_nodes", num_nodes, nodes)
        found = layout_map(
            belief.space,
            belief.calibration,
            belief.known,
            objective=request.objective,
            headroom_gib=request.min_headroom_gib or 0.0,
            micro_batch_size=micro_batch_size,
            num_nodes=num_nodes,
            x=x,
            y=y,
        )
        best = _best_run(source, x, y, micro_batch_size, num_nodes)
        cells = [_with_best(place, best) for place in found]
        unit, simulated = OBJECTIVE_UNITS[request.objective], source.campaign.simulated
        return cls._of_campaign(
            source,
            _caption(cells, x, y, unit),
            title=f"Best rate by {dimension_name(x)} and {dimension_name(y)}",
            table=table_of(_cells(x, y, unit, simulated=simulated), cells),
            choices=[
                *choice("x", [name for name in axes if name != y], x),
                *choice("y", [name for name in axes if name != x], y),
                *_choice("micro_batch_size", sizes, micro_batch_size),
                *_choice("num_nodes", nodes, num_nodes),
            ],
            x=x,
            y=y,
            micro_batch_size=micro_batch_size,
            num_nodes=num_nodes,
            micro_batch_sizes=sizes,
            nodes=nodes,
            cells=cells,
        )

    @classmethod
    def missing(cls, source: FigureSource) -> str:
        return "" if source.trials else "no trial has been started yet"

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        palette = PALETTES[scheme]
        cells = _cells(self.x, self.y, self.unit, simulated=self.simulated)
        rates = [cell.rate for cell in self.cells if cell.rate is not None]
        grounds = [self._ground(cell.rate, rates, scheme) for cell in self.cells]
        rows = [
            row | {"x": setting_text(row["x"]), "y": setting_text(row["y"]), "ground": ground}
            for row, ground in zip(rows_of(cells, self.cells), grounds, strict=True)
        ]
        wide = len({cell.x for cell in self.cells})
        tall = [setting_text(each) for each in in_order(self.y, {cell.y for cell in self.cells})]
        x, y = (name.replace("_", " ") for name in (self.x, self.y))
        place = {
            "x": ordinal("x", title=x, sort=None, axis={"labelAngle": 0, "grid": False}),
            "y": ordinal("y", title=y, sort=tall, axis={"grid": False}),
            "tooltip": tooltip(cells),
        }
        ground = place | {"color": nominal("ground", scale=None)}
        marked = place | self._channels(scheme)
        point: Spec = {"size": 70, "strokeWidth": 1.5, "opacity": 1}
        rate: Spec = {"fontSize": 13, "fontWeight": 600, "dy": -8, "color": palette.text}
        rate["opacity"] = {"expr": f"width < {RATE_PX * wide} ? 0 : 1"}
        layers = [
            layer("rect", "all", ground, stroke=palette.card, strokeWidth=3),
            layer("point", "cells", marked, yOffset=MARK_DOWN_PX, **point),
            layer("point", "empty", marked, **point),
            layer("text", "cells", place | {"text": nominal(self.unit)}, **rate),
        ]
        data = {
            "all": rows,
            "cells": [row for row in rows if row["rate"] is not None],
            "empty": [row for row in rows if row["rate"] is None],
        }
        return finish(layers, palette, data, height=CELL_PX * max(len(tall), 1))

    def _channels(self, scheme: Scheme) -> Spec:
        palette, words = PALETTES[scheme], words_of(self.simulated)
        states = [state for state in WORDS if any(cell.state == state for cell in self.cells)]
        names = [words[state] for state in states]
        colours = {state: palette.oom if state in BAD else palette.text for state in states}
        look = {
            "shape": [SHAPES[state] for state in states],
            "stroke": [colours[state] for state in states],
            "fill": ["transparent" if each in HOLLOW else colours[each] for each in states],
        }
        options: Spec = {"title": None, "legend": {"symbolStrokeWidth": 1.5}}
        return {
            channel: nominal("State", scale=by_value(names, drawn), **options)
            for channel, drawn in look.items()
        }

    def _ground(self, rate: float | None, rates: Sequence[float], scheme: Scheme) -> str:
        if rate is None:
            return PALETTES[scheme].lane
        place = (rate - min(rates)) / max(max(rates) - min(rates), 1e-12)
        return _mixed(*HEAT[scheme], place)


def words_of(simulated: bool) -> Mapping[PlaceState, str]:
    return {**WORDS, "measured": "simulated"} if simulated else WORDS


def _offered(lattice: Lattice) -> list[str]:
    counts = {name: len(values_of(lattice, name)) for name in lattice.columns}
    return [n for n in counts if n in USUAL_AXES or 1 < counts[n] <= MOST_VALUES]


def _check_axis(field: str, name: str, offered: Sequence[str], *, other: str) -> None:
    if name not in offered or name == other:
        reason = f"the space of this campaign does not have 2 to {MOST_VALUES} values of it"
        reason = "both axes have the same dimension" if name == other else reason
        valid = ", ".join(each for each in offered if each != other)
        raise InvalidInput(field, name, reason, valid=valid)


def _check(field: str, value: int | None, offered: Sequence[int]) -> None:
    if value is not None and value not in offered:
        valid = ", ".join(map(str, offered))
        raise InvalidInput(field, value, "no layout of this campaign has it", valid=valid)


def _choice(name: str, offered: Sequence[int], value: int | None) -> list[FigureChoice]:
    values, chosen = [str(each) for each in offered], "" if value is None else str(value)
    return choice(name, values, chosen, label=LABELS[name], required=False)


def _best_run(
    source: FigureSource, x: str, y: str, micro_batch_size: int | None, num_nodes: int | None
) -> dict[tuple[Scalar, Scalar], Contender]:
    best: dict[tuple[Scalar, Scalar], Contender] = {}
    for each in source.contenders:
        own = each.strategy
        wanted = (micro_batch_size or own.micro_batch_size, num_nodes or own.num_nodes)
        if each.projection is None and wanted == (own.micro_batch_size, own.num_nodes):
            place = (own.value(x), own.value(y))
            best[place] = max(best.get(place, each), each, key=lambda one: one.rate)
    return best


def _with_best(place: MapPlace, best: Mapping[tuple[Scalar, Scalar], Contender]) -> MapPlace:
    ran = best.get((place.x, place.y))
    if place.state != "measured" or ran is None:
        return place
    return place.model_copy(update={"rate": ran.rate, "strategy": ran.strategy})


def _caption(cells: Sequence[MapPlace], x: str, y: str, unit: str) -> str:
    ran = [cell for cell in cells if cell.state == "measured"]
    best = max(ran, key=lambda cell: cell.rate or 0.0, default=None)
    full = sum(cell.state == "out_of_memory" for cell in cells)
    head = "Nothing has run yet"
    if best is not None:
        where = with_values_words({x: best.x, y: best.y})
        head = f"The best is found {where}: {figure(best.rate)} {unit}"
    out = f", {full} ran out of memory" if full else ""
    return f"{head}; of {plural(len(cells), 'place')} {len(ran)} ran{out}."


def _cells(x: str, y: str, unit: str, *, simulated: bool) -> Cells[MapPlace]:
    words = words_of(simulated)
    return {
        dimension_head(x): lambda cell: setting_text(cell.x),
        dimension_head(y): lambda cell: setting_text(cell.y),
        "State": lambda cell: words[cell.state],
        unit: lambda cell: figure(cell.rate),
        "80 % interval": lambda cell: (
            "–" if cell.low is None else f"{figure(cell.low)} to {figure(cell.high)}"
        ),
        "Fits": lambda cell: probability(cell.fit_probability),
        "Layout": lambda cell: cell.strategy.short() if cell.strategy else "",
        "Trials": lambda cell: (
            f"{cell.trials}, {cell.out_of_memory} out of memory"
            if cell.out_of_memory
            else str(cell.trials)
        ),
    }


def _mixed(low: str, high: str, place: float) -> str:
    ends = [[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in (low, high)]
    channels = (round(a + (b - a) * place) for a, b in zip(*ends, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in channels)
