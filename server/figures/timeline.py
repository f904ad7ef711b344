"""The nodes over time: where each trial waited, started up and trained."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from autotune.measurement import SECONDS_PER_HOUR
from autotune.schemas import FigureTable, Trial, TrialState, Wire
from server.figures.figure import DrawnFigure
from server.figures.outcome import FAILURES, SHAPES, Outcome, outcome_of
from server.figures.source import FigureSource
from server.figures.style import PALETTES, Scheme, by_value, finish
from server.figures.vega import Spec, layer, nominal, ordinal, quantitative
from server.wording import axis_unit, duration, strategy_line

MOST_ROWS_PX = 340
MARKS = 400
"""Trials up to which the end of each is marked by its outcome."""

PHASES = ("waiting for nodes", "starting up", "training")
GROUNDS = {
    "light": ("#c3c9d1", "#E69F00", "#0072B2"),
    "dark": ("#4a5461", "#E69F00", "#56B4E9"),
}
"""Of the phases."""
OVERLAP = 1.5
"""Times of the nodes that trials may have held at once before their clock is not the wall's."""


class TimelineTrial(Wire):
    """One trial on its nodes.

    Times are seconds since the campaign's first trial was asked for.
    """

    number: int
    """The trial."""
    outcome: Outcome
    """How it ended."""
    strategy: str
    """The strategy in a line."""
    first_node: int
    """The first of its nodes, which are numbered from 0."""
    num_nodes: int
    """Nodes that it ran on, one after the other."""
    asked_s: float
    """When it was asked for."""
    started_s: float
    """When it had its nodes."""
    trained_s: float
    """When its first timed iteration began, about."""
    ended_s: float
    """When it ended."""


class TimelineFigure(DrawnFigure):
    """The nodes over time."""

    kind: Literal["timeline"] = "timeline"
    """What it shows."""
    nodes: int
    """Nodes that trials may hold."""
    span_s: float
    """From the first trial to the last end, s."""
    utilisation: float
    """Share of the nodes' time that trials held, 0 to 1."""
    training: float
    """Share of the nodes' time in which trials timed iterations, 0 to 1."""
    replayed: bool
    """Whether the trials are simulated and did not take their time: they are laid out as they would
    have run, in their order, each as soon as it had its nodes."""
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
        rows = [
            [
                str(each.number),
                str(each.num_nodes),
                duration(each.asked_s),
                duration(each.started_s - each.asked_s),
                duration(each.trained_s - each.started_s),
                duration(each.ended_s - each.trained_s),
                each.outcome.value,
                each.strategy,
            ]
            for each in placed
        ]
        columns = [
            "Trial",
            "Nodes",
            "Asked for after",
            "Waited",
            "Start-up",
            "Trained",
            "Outcome",
            "Strategy",
        ]
        caption = (
            f"{nodes} node{'s' if nodes > 1 else ''} were held for {100 * held / whole:.0f} % of "
            f"{duration(span_s)} and trained for {100 * trained / whole:.0f} %: "
            f"{held / SECONDS_PER_HOUR:.3g} node-hours"
        )
        told = "; simulated trials, laid out as they would have run" if replayed else ""
        return cls(
            **source.head(title="Nodes over time", caption=f"{caption}{told}."),
            table=FigureTable(columns=columns, rows=rows),
            nodes=nodes,
            span_s=span_s,
            utilisation=held / whole,
            training=trained / whole,
            replayed=replayed,
            trials=placed,
        )

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        palette = PALETTES[scheme]
        unit, length_s = axis_unit(self.span_s)
        # A trial is drawn on nodes beside each other, for which all that there are may not do.
        height_nodes = max(self.nodes, *(t.first_node + t.num_nodes for t in self.trials))
        rows, ends = self._rows(length_s)
        x = quantitative(
            "from",
            title=f"time since the first trial, {unit}",
            scale={"nice": False, "zero": True, "domain": [0, self.span_s / length_s * 1.01]},
        )
        y = quantitative(
            "low",
            title="node",
            axis={"tickMinStep": 1, "format": "d", "grid": False},
            scale={"domain": [0, height_nodes], "nice": False, "reverse": True},
        )
        colour = nominal("phase", title=None, scale=by_value(PHASES, GROUNDS[scheme]))
        tooltip = [
            ordinal("number", title="trial"),
            nominal("strategy", title="layout"),
            nominal("phase", title="was"),
            nominal("lasted", title="for"),
            nominal("outcome", title="ended"),
        ]
        phase = {
            "x": x,
            "x2": {"field": "to"},
            "y": y,
            "y2": {"field": "high"},
            "color": colour,
            "tooltip": tooltip,
        }
        layers = [layer("rect", "phases", phase, stroke=palette.card, strokeWidth=0.6)]
        if ends:
            kinds = [each.value for each in FAILURES if any(e["outcome"] == each for e in ends)]
            shapes = by_value(kinds, [SHAPES[Outcome(kind)] for kind in kinds])
            end = {
                "x": quantitative("to"),
                "y": quantitative("middle"),
                "shape": nominal("outcome", title=None, scale=shapes),
                "tooltip": tooltip,
            }
            look: Spec = {"filled": True, "size": 60, "opacity": 1, "strokeWidth": 1}
            layers.append(
                layer("point", "ends", end, color=palette.text, stroke=palette.card, **look)
            )
        height = max(120, min(MOST_ROWS_PX, 22 * height_nodes))
        return finish(layers, palette, {"phases": rows, "ends": ends}, height=height)

    def _rows(self, length_s: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return a row for each phase of a trial, and one for the end of each that failed."""
        rows: list[dict[str, Any]] = []
        ends: list[dict[str, Any]] = []
        for each in self.trials:
            said = {
                "number": each.number,
                "strategy": each.strategy,
                "outcome": each.outcome.value,
                "low": each.first_node,
                "high": each.first_node + each.num_nodes,
                "middle": each.first_node + each.num_nodes / 2,
            }
            times = (each.asked_s, each.started_s, each.trained_s, each.ended_s)
            for phase, start, end in zip(PHASES, times, times[1:], strict=False):
                if end > start:
                    own = {"phase": phase, "lasted": duration(end - start)}
                    rows.append(said | own | {"from": start / length_s, "to": end / length_s})
            failed = each.outcome in FAILURES
            if failed and len(self.trials) <= MARKS:
                lasted = duration(each.ended_s - each.started_s)
                ends.append(said | {"to": each.ended_s / length_s, "lasted": lasted, "phase": ""})
        return rows, ends


@dataclass(frozen=True, kw_only=True)
class _Span:
    trial: Trial
    asked_s: float
    started_s: float
    trained_s: float
    ended_s: float


def missing(source: FigureSource) -> str:
    """Return why there is no timeline."""
    return "" if _ended(source) else "no trial has held nodes and ended yet"


def _ended(source: FigureSource) -> list[Trial]:
    """Return the trials that held nodes and ended, in their order."""
    ran = [t for t in source.trials if t.started_at and t.duration_s and t.finished_at]
    return sorted(
        (t for t in ran if t.state is not TrialState.PENDING), key=lambda trial: trial.number
    )


def _trained_s(trial: Trial) -> float:
    """Return the seconds of a trial in which it timed iterations."""
    timed = sum(sum(point.iteration_times_s) for point in trial.accumulations if point.measured)
    return min(timed, trial.duration_s or 0.0)


def _spans(trials: Sequence[Trial], nodes: int) -> tuple[list[_Span], bool]:
    """Return when each trial held its nodes, and whether that is as it would have run.

    Simulated trials end at once, or faster than they say: where more node-time was held than there
    was, they are laid out one after another instead.
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
        ended = started + (trial.duration_s or 0.0)
        spans.append(
            _Span(
                trial=trial,
                asked_s=asked,
                started_s=started,
                trained_s=ended - _trained_s(trial),
                ended_s=ended,
            )
        )
    return spans, False


def _replayed(trials: Sequence[Trial], nodes: int) -> list[_Span]:
    """Return the trials in their order, each as soon as enough of the nodes are free."""
    running: list[tuple[float, int]] = []
    free, now = nodes, 0.0
    spans = []
    for trial in trials:
        while free < trial.strategy.num_nodes:
            ended, count = heapq.heappop(running)
            now, free = max(now, ended), free + count
        ended = now + (trial.duration_s or 0.0)
        heapq.heappush(running, (ended, trial.strategy.num_nodes))
        free -= trial.strategy.num_nodes
        trained = ended - _trained_s(trial)
        spans.append(
            _Span(trial=trial, asked_s=now, started_s=now, trained_s=trained, ended_s=ended)
        )
    return spans


def _placed(spans: Sequence[_Span]) -> list[TimelineTrial]:
    """Return each trial on the lowest nodes beside each other that are free throughout."""
    placed: list[TimelineTrial] = []
    running: list[TimelineTrial] = []
    for span in sorted(spans, key=lambda each: (each.started_s, each.trial.number)):
        count = span.trial.strategy.num_nodes
        running = [each for each in running if each.ended_s > span.started_s]
        taken = sorted((each.first_node, each.first_node + each.num_nodes) for each in running)
        first = 0
        for low, high in taken:
            if low - first >= count:
                break
            first = max(first, high)
        running.append(
            TimelineTrial(
                number=span.trial.number,
                outcome=outcome_of(span.trial),
                strategy=strategy_line(span.trial.strategy),
                first_node=first,
                num_nodes=count,
                asked_s=span.asked_s,
                started_s=span.started_s,
                trained_s=span.trained_s,
                ended_s=span.ended_s,
            )
        )
        placed.append(running[-1])
    return placed
