"""The nodes over time: when each trial waited, started up and trained."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, Literal

from autotune.measurement import SECONDS_PER_HOUR
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from autotune.schemas.wire import Wire
from server.figures.figure import Cells, DrawnFigure, rows_of, table_of, tooltip
from server.figures.outcome import FAILURES, SHAPES, Outcome, outcome_of
from server.figures.source import FigureSource
from server.figures.vega import (
    HUES,
    PALETTES,
    Scheme,
    Spec,
    by_value,
    finish,
    layer,
    nominal,
    quantitative,
)
from server.wording import axis_unit, duration, strategy_line

MOST_ROWS_PX = 340
MARKS = 400
"""Failures are marked only if there are at most this many trials."""

PHASES = {"waiting for nodes": "silver", "starting up": "orange", "training": "blue"}
"""Each phase of a trial and its hue."""
OVERLAP = 1.5
"""Simulated trials that held more than this multiple of the available node-time are replayed."""


class TimelineTrial(Wire):
    """One trial on its nodes; times are seconds since the first trial was created."""

    number: int
    """The trial."""
    outcome: Outcome
    """How it ended."""
    strategy: str
    """The strategy as text."""
    first_node: int
    """The first of its nodes, numbered from 0."""
    num_nodes: int
    """Number of its nodes, which are consecutive."""
    asked_s: float
    """When it was created."""
    started_s: float
    """When it got its nodes."""
    trained_s: float
    """Approximate start of its first timed iteration."""
    ended_s: float
    """When it ended."""


CELLS: Cells[TimelineTrial] = {
    "Trial": lambda trial: str(trial.number),
    "Nodes": lambda trial: str(trial.num_nodes),
    "Asked for after": lambda trial: duration(trial.asked_s),
    "Waited": lambda trial: duration(trial.started_s - trial.asked_s),
    "Start-up": lambda trial: duration(trial.trained_s - trial.started_s),
    "Trained": lambda trial: duration(trial.ended_s - trial.trained_s),
    "Outcome": lambda trial: trial.outcome.value,
    "Strategy": lambda trial: trial.strategy,
}


class TimelineFigure(DrawnFigure):
    """The nodes over time."""

    named = "Nodes over time"
    shows = "when each trial waited, started up and trained, and how busy the nodes were"
    of_studies = True

    kind: Literal["timeline"] = "timeline"
    """Kind of figure."""
    nodes: int
    """Nodes available to trials."""
    span_s: float
    """Time from the first trial to the last end, s."""
    utilisation: float
    """Share of the node-time that trials held, 0 to 1."""
    training: float
    """Share of the node-time in which trials timed iterations, 0 to 1."""
    replayed: bool
    """Whether the trials are simulated and faster than real ones: then they are shown as they would
    have run, in their order, each as soon as enough nodes are free."""
    trials: list[TimelineTrial]
    """The trials that have ended."""

    @classmethod
    def of(cls, source: FigureSource) -> TimelineFigure:
        ended = _ended(source)
        campaign = source.campaign
        nodes = campaign.request.pool_nodes or campaign.request.nodes
        nodes = max(nodes, *(trial.strategy.num_nodes for trial in ended))
        spans, replayed = _spans(ended, nodes)
        placed = _placed(spans)
        span_s = max(each.ended_s for each in placed)
        held = sum(each.num_nodes * (each.ended_s - each.started_s) for each in placed)
        trained = sum(each.num_nodes * (each.ended_s - each.trained_s) for each in placed)
        whole = max(nodes * span_s, 1e-9)
        caption = (
            f"{nodes} node{'s' if nodes > 1 else ''} were held for {100 * held / whole:.0f} % of "
            f"{duration(span_s)} and trained for {100 * trained / whole:.0f} %: "
            f"{held / SECONDS_PER_HOUR:.3g} node-hours"
        )
        shown = "; simulated trials, shown as they would have run" if replayed else ""
        return cls._of_campaign(
            source,
            f"{caption}{shown}.",
            table=table_of(CELLS, placed),
            nodes=nodes,
            span_s=span_s,
            utilisation=held / whole,
            training=trained / whole,
            replayed=replayed,
            trials=placed,
        )

    @classmethod
    def missing(cls, source: FigureSource) -> str:
        return "" if _ended(source) else "no trial has held nodes and ended yet"

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        palette = PALETTES[scheme]
        unit, length_s = axis_unit(self.span_s)
        # Trials are drawn on consecutive nodes, which may take more nodes than there are.
        height_nodes = max(self.nodes, *(t.first_node + t.num_nodes for t in self.trials))
        rows, ends = self._rows(length_s)
        x = quantitative(
            "from",
            title=f"time since the first trial, {unit}",
            axis={"tickCount": 8},
            scale={"nice": False, "zero": True, "domain": [0, self.span_s / length_s * 1.01]},
        )
        y = quantitative(
            "low",
            title="node",
            axis={"tickMinStep": 1, "format": "d", "grid": False},
            scale={"domain": [0, height_nodes], "nice": False, "reverse": True},
        )
        colours = by_value(list(PHASES), [HUES[scheme][hue] for hue in PHASES.values()])
        colour = nominal("phase", title=None, scale=colours)
        phase = {
            "x": x,
            "x2": {"field": "to"},
            "y": y,
            "y2": {"field": "high"},
            "color": colour,
            "tooltip": tooltip(CELLS),
        }
        # The gaps between thousands of trials would cover them.
        gap_px = 0.6 if len(self.trials) <= MARKS else 0.0
        layers = [layer("rect", "phases", phase, stroke=palette.card, strokeWidth=gap_px)]
        if ends:
            kinds = [each.value for each in FAILURES if any(e["outcome"] == each for e in ends)]
            shapes = by_value(kinds, [SHAPES[Outcome(kind)] for kind in kinds])
            end = {
                "x": quantitative("to"),
                "y": quantitative("middle"),
                "shape": nominal("outcome", title=None, scale=shapes),
                "tooltip": tooltip(CELLS),
            }
            look: Spec = {"filled": True, "size": 60, "opacity": 1, "strokeWidth": 1}
            layers.append(
                layer("point", "ends", end, color=palette.text, stroke=palette.card, **look)
            )
        height = max(120, min(MOST_ROWS_PX, 22 * height_nodes))
        return finish(layers, palette, {"phases": rows, "ends": ends}, height=height)

    def _rows(self, length_s: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return one row per phase of a trial, and one for the end of each failed trial."""
        rows: list[dict[str, Any]] = []
        ends: list[dict[str, Any]] = []
        for each, row in zip(self.trials, rows_of(CELLS, self.trials), strict=True):
            high = each.first_node + each.num_nodes
            row |= {"low": each.first_node, "high": high, "middle": (each.first_node + high) / 2}
            times = (each.asked_s, each.started_s, each.trained_s, each.ended_s)
            for phase, start, end in zip(PHASES, times, times[1:], strict=False):
                if end > start:
                    own = {"phase": phase, "from": start / length_s, "to": end / length_s}
                    rows.append(row | own)
            if each.outcome in FAILURES and len(self.trials) <= MARKS:
                ends.append(row | {"to": each.ended_s / length_s})
        return rows, ends


def _ended(source: FigureSource) -> list[Trial]:
    """Return the trials that held nodes and ended, by number."""
    ran = [t for t in source.trials if t.started_at and t.duration_s and t.finished_at]
    return sorted(
        (t for t in ran if t.state is not TrialState.PENDING), key=lambda trial: trial.number
    )


def _span(trial: Trial, *, asked_s: float, started_s: float) -> TimelineTrial:
    """Return a trial by when it was asked for and got its nodes, on the first ones."""
    ended_s = started_s + (trial.duration_s or 0.0)
    timed = sum(sum(point.iteration_times_s) for point in trial.accumulations if point.measured)
    return TimelineTrial(
        number=trial.number,
        outcome=outcome_of(trial),
        strategy=strategy_line(trial.strategy),
        first_node=0,
        num_nodes=trial.strategy.num_nodes,
        asked_s=asked_s,
        started_s=started_s,
        trained_s=max(started_s, ended_s - timed),
        ended_s=ended_s,
    )


def _spans(trials: Sequence[Trial], nodes: int) -> tuple[list[TimelineTrial], bool]:
    """Return when each trial held its nodes, and whether they are replayed.

    Simulated trials end faster than they report. If they report more node-time than there was, they
    are scheduled again from their reported durations.
    """
    start = min(trial.created_at for trial in trials)
    wall_s = max((trial.finished_at or start) - start for trial in trials).total_seconds()
    held = sum(trial.strategy.num_nodes * (trial.duration_s or 0.0) for trial in trials)
    if all(trial.simulated for trial in trials) and held > OVERLAP * nodes * wall_s:
        return _replayed(trials, nodes), True
    spans = []
    for trial in trials:
        asked = (trial.created_at - start).total_seconds()
        started = max(asked, ((trial.started_at or start) - start).total_seconds())
        spans.append(_span(trial, asked_s=asked, started_s=started))
    return spans, False


def _replayed(trials: Sequence[Trial], nodes: int) -> list[TimelineTrial]:
    """Return the trials in their order, each as soon as enough nodes are free."""
    running: list[tuple[float, int]] = []
    free, now = nodes, 0.0
    spans = []
    for trial in trials:
        while free < trial.strategy.num_nodes:
            ended, count = heapq.heappop(running)
            now, free = max(now, ended), free + count
        spans.append(_span(trial, asked_s=now, started_s=now))
        heapq.heappush(running, (spans[-1].ended_s, trial.strategy.num_nodes))
        free -= trial.strategy.num_nodes
    return spans


def _placed(spans: Sequence[TimelineTrial]) -> list[TimelineTrial]:
    """Return each trial on the lowest consecutive nodes that are free throughout."""
    placed: list[TimelineTrial] = []
    running: list[TimelineTrial] = []
    for span in sorted(spans, key=lambda each: (each.started_s, each.number)):
        running = [each for each in running if each.ended_s > span.started_s]
        taken = sorted((each.first_node, each.first_node + each.num_nodes) for each in running)
        first = 0
        for low, high in taken:
            if low - first >= span.num_nodes:
                break
            first = max(first, high)
        placed.append(span.model_copy(update={"first_node": first}))
        running.append(placed[-1])
    return placed
