"""The best rate for each TP and PP: measured or predicted, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from autotune.explanation import LayoutMap, MapCell, layout_map
from autotune.objectives import OBJECTIVE_UNITS
from autotune.recommendation.ranking import Contender
from autotune.resolution import strategy_shape
from autotune.schemas import FigureChoice, FigureTable, StrategyShape, Wire
from autotune.wording import figure
from search_spaces.errors import InvalidInput
from server.figures.figure import DrawnFigure
from server.figures.source import FigureSource
from server.figures.style import PALETTES, Scheme, by_value, finish
from server.figures.vega import Spec, layer, nominal, ordinal
from server.wording import plural, probability, strategy_line

PlaceState = Literal["measured", "predicted", "out_of_memory", "too_large"]
"""`predicted`: nothing ran there yet; `out_of_memory`: what was tried there ran out of it, and the
rest is not likely to fit; `too_large`: nothing was tried there, and nothing is likely to fit."""

CELL_PX = 56
MARK_DOWN_PX = 12
"""How far a cell's mark stands below its middle, where its rate is written."""

HEAT = {"light": ("#edf4fb", "#6aaede"), "dark": ("#18293a", "#2f6d9e")}
"""Of the lowest and of the highest rate; text and marks stand out from both."""

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


class MapPlace(Wire):
    """One TP and PP."""

    tensor_parallel: int
    """GPUs that each layer is split over (TP)."""
    pipeline_parallel: int
    """Stages that the layers are cut into (PP)."""
    state: PlaceState
    """What became of it: `predicted`: nothing ran there yet; `out_of_memory`: what was tried there
    ran out of it, and the rest is not likely to fit; `too_large`: nothing was tried there, and
    nothing is likely to fit."""
    rate: float | None
    """Rate of its best strategy; null where nothing runs."""
    low: float | None
    """Lower end of the 80 % interval of a predicted rate; null where it is measured."""
    high: float | None
    """Upper end of the 80 % interval of a predicted rate; null where it is measured."""
    strategy: StrategyShape | None
    """Its best strategy; null where nothing runs."""
    fit_probability: float
    """Probability that the best strategy fits, or the highest of any."""
    strategies: int
    """Legal strategies there."""
    trials: int
    """Trials that have ended there."""
    out_of_memory: int
    """Trials that ran out of memory there."""


class LayoutMapFigure(DrawnFigure):
    """The best rate for each TP and PP; places without a legal strategy are left out."""

    kind: Literal["map"] = "map"
    """What it shows."""
    unit: str
    """Unit of the rate."""
    micro_batch_size: int | None
    """What it was narrowed to; null for all."""
    num_nodes: int | None
    """What it was narrowed to; null for all."""
    micro_batch_sizes: list[int]
    """Micro-batch sizes that it can be narrowed to."""
    nodes: list[int]
    """Numbers of nodes that it can be narrowed to."""
    cells: list[MapPlace]
    """The places."""

    @classmethod
    def of(
        cls,
        source: FigureSource,
        *,
        micro_batch_size: int | None = None,
        num_nodes: int | None = None,
    ) -> LayoutMapFigure:
        """Raises InvalidInput for a micro-batch size or a number of nodes that the space has
        not."""
        request, belief = source.campaign.request, source.belief
        found = layout_map(
            belief.space,
            belief.calibration,
            belief.known,
            objective=request.objective,
            headroom_gib=request.min_headroom_gib,
            micro_batch_size=micro_batch_size,
            num_nodes=num_nodes,
        )
        _check("micro_batch_size", micro_batch_size, found.micro_batch_sizes)
        _check("num_nodes", num_nodes, found.num_nodes)
        cells = _places(found, _best_run(source, micro_batch_size, num_nodes))
        unit, simulated = OBJECTIVE_UNITS[request.objective], source.campaign.simulated
        return cls(
            **source.head(title="Best rate by TP and PP", caption=_caption(cells, unit)),
            table=_table(cells, unit, words_of(simulated)),
            unit=unit,
            choices=[
                *_choice("micro_batch_size", found.micro_batch_sizes, micro_batch_size),
                *_choice("num_nodes", found.num_nodes, num_nodes),
            ],
            micro_batch_size=micro_batch_size,
            num_nodes=num_nodes,
            micro_batch_sizes=list(found.micro_batch_sizes),
            nodes=list(found.num_nodes),
            cells=cells,
        )

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        palette = PALETTES[scheme]
        rows = self._rows(scheme)
        tall = sorted({cell.pipeline_parallel for cell in self.cells})
        place = {
            "x": ordinal("tp", title="tensor parallel", axis={"labelAngle": 0, "grid": False}),
            "y": ordinal("pp", title="pipeline parallel", sort=tall, axis={"grid": False}),
            "tooltip": [
                nominal("where", title="at"),
                nominal("state", title="is"),
                nominal("said", title=self.unit),
                nominal("between", title="80 %"),
                nominal("fits", title="fits"),
                nominal("strategy", title="layout"),
            ],
        }
        ground = place | {"color": nominal("ground", scale=None)}
        marked = place | self._channels(scheme)
        point: Spec = {"size": 70, "strokeWidth": 1.5, "opacity": 1}
        rate: Spec = {"fontSize": 13, "fontWeight": 600, "dy": -8, "color": palette.text}
        layers = [
            layer("rect", "all", ground, stroke=palette.card, strokeWidth=3),
            layer("point", "cells", marked, yOffset=MARK_DOWN_PX, **point),
            layer("point", "empty", marked, **point),
            layer("text", "cells", place | {"text": nominal("said")}, **rate),
        ]
        data = {
            "all": rows,
            "cells": [row for row in rows if row["said"]],
            "empty": [row for row in rows if not row["said"]],
        }
        return finish(layers, palette, data, height=CELL_PX * max(len(tall), 1))

    def _channels(self, scheme: Scheme) -> Spec:
        """Return shape, stroke and fill of the marks by their state."""
        palette, words = PALETTES[scheme], words_of(self.simulated)
        states = [state for state in WORDS if any(cell.state == state for cell in self.cells)]
        names = [words[state] for state in states]
        colours = {state: palette.oom if state in BAD else palette.text for state in states}
        look = {
            "shape": [SHAPES[state] for state in states],
            "stroke": [colours[state] for state in states],
            "fill": ["transparent" if each in HOLLOW else colours[each] for each in states],
        }
        told: Spec = {"title": None, "legend": {"symbolStrokeWidth": 1.5}}
        return {
            channel: nominal("state", scale=by_value(names, drawn), **told)
            for channel, drawn in look.items()
        }

    def _rows(self, scheme: Scheme) -> list[dict[str, Any]]:
        palette, words = PALETTES[scheme], words_of(self.simulated)
        rates = [cell.rate for cell in self.cells if cell.rate is not None]
        low, high = min(rates, default=0.0), max(rates, default=1.0)
        rows = []
        for cell in self.cells:
            ground, said, between = palette.lane, "", ""
            if cell.rate is not None:
                place = (cell.rate - low) / max(high - low, 1e-12)
                ground, said = _mixed(*HEAT[scheme], place), figure(cell.rate)
            if cell.low is not None and cell.high is not None:
                between = f"{figure(cell.low)} to {figure(cell.high)}"
            rows.append(
                {
                    "tp": cell.tensor_parallel,
                    "pp": cell.pipeline_parallel,
                    "where": f"TP {cell.tensor_parallel} · PP {cell.pipeline_parallel}",
                    "state": words[cell.state],
                    "said": said,
                    "between": between,
                    "fits": "" if cell.state == "measured" else probability(cell.fit_probability),
                    "strategy": strategy_line(cell.strategy) if cell.strategy else "",
                    "ground": ground,
                }
            )
        return rows


def missing(source: FigureSource) -> str:
    """Return why there is no map."""
    return "" if source.trials else "no trial has been started yet"


def words_of(simulated: bool) -> Mapping[PlaceState, str]:
    """Return what states are called; nothing simulated is called measured."""
    return {**WORDS, "measured": "simulated"} if simulated else WORDS


def _check(field: str, value: int | None, offered: Sequence[int]) -> None:
    if value is not None and value not in offered:
        valid = ", ".join(map(str, offered))
        raise InvalidInput(field, value, "no strategy of this campaign has it", valid=valid)


def _choice(name: str, offered: Sequence[int], value: int | None) -> list[FigureChoice]:
    if len(offered) < 2:
        return []
    values = [str(each) for each in offered]
    chosen = "" if value is None else str(value)
    return [FigureChoice(name=name, label=LABELS[name], values=values, value=chosen)]


def _best_run(
    source: FigureSource, micro_batch_size: int | None, num_nodes: int | None
) -> dict[tuple[int, int], Contender]:
    """Return the best that ran at each place, with the figures that it has wherever it stands."""
    best: dict[tuple[int, int], Contender] = {}
    for each in source.contenders:
        own = each.strategy
        wanted = (micro_batch_size or own.micro_batch_size, num_nodes or own.num_nodes)
        if each.projection is None and wanted == (own.micro_batch_size, own.num_nodes):
            place = (own.tensor_parallel, own.pipeline_parallel)
            best[place] = max(best.get(place, each), each, key=lambda one: one.rate)
    return best


def _places(found: LayoutMap, best: Mapping[tuple[int, int], Contender]) -> list[MapPlace]:
    places = []
    for cell in found.cells:
        state = _state(cell)
        if state is None:
            continue
        rate, strategy = cell.rate, cell.strategy
        ran = best.get((cell.tensor_parallel, cell.pipeline_parallel))
        if state == "measured" and ran is not None:
            rate, strategy = ran.rate, ran.strategy
        places.append(
            MapPlace(
                tensor_parallel=cell.tensor_parallel,
                pipeline_parallel=cell.pipeline_parallel,
                state=state,
                rate=rate,
                low=cell.low,
                high=cell.high,
                strategy=strategy_shape(strategy) if strategy else None,
                fit_probability=cell.fit_probability,
                strategies=cell.strategies,
                trials=cell.trials,
                out_of_memory=cell.out_of_memory,
            )
        )
    return places


def _state(cell: MapCell) -> PlaceState | None:
    """Return how a cell is drawn; None for one that is not."""
    if cell.state == "illegal":
        return None
    if cell.state == "out_of_memory" and not cell.out_of_memory:
        return "too_large"
    return cell.state


def _caption(cells: Sequence[MapPlace], unit: str) -> str:
    ran = [cell for cell in cells if cell.state == "measured"]
    best = max(ran, key=lambda cell: cell.rate or 0.0, default=None)
    full = sum(cell.state == "out_of_memory" for cell in cells)
    head = "Nothing has run yet"
    if best is not None:
        where = f"TP {best.tensor_parallel} with PP {best.pipeline_parallel}"
        head = f"The best is found at {where}: {figure(best.rate)} {unit}"
    out = f", {full} ran out of memory" if full else ""
    return f"{head}; of {plural(len(cells), 'place')} {len(ran)} ran{out}."


def _table(cells: Sequence[MapPlace], unit: str, words: Mapping[PlaceState, str]) -> FigureTable:
    rows = [
        [
            str(cell.tensor_parallel),
            str(cell.pipeline_parallel),
            words[cell.state],
            figure(cell.rate),
            "–" if cell.low is None else f"{figure(cell.low)} to {figure(cell.high)}",
            probability(cell.fit_probability),
            strategy_line(cell.strategy) if cell.strategy else "",
            f"{cell.trials}, {cell.out_of_memory} out of memory"
            if cell.out_of_memory
            else str(cell.trials),
        ]
        for cell in cells
    ]
    columns = ["TP", "PP", "State", unit, "80 % interval", "Fits", "Strategy", "Trials"]
    return FigureTable(columns=columns, rows=rows)


def _mixed(low: str, high: str, place: float) -> str:
    """Return the colour at `place` (0 to 1) between two."""
    ends = [[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in (low, high)]
    channels = (round(a + (b - a) * place) for a, b in zip(*ends, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in channels)
