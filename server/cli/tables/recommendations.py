"""Recommendations as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.schemas.choices import ParetoCost
from autotune.schemas.recommendations import (
    Baseline,
    FrontPoint,
    Neighbour,
    ParetoFront,
    Ranked,
    Recommendation,
    SpaceStanding,
    TrainingCost,
    TrainingSaving,
)
from server.cli.tables.campaigns import metrics_facts
from server.cli.tables.elements import (
    NO_VALUE,
    facts,
    figure,
    mark,
    parameters,
    percent,
    seconds,
    strategy_line,
    table,
    with_unit,
)
from server.wording import (
    fits,
    neighbour_state,
    projected_from,
    standing_of,
    training_energy,
)


def baseline(item: Baseline) -> Table:
    """Return the baseline layout, and how it compares."""
    return facts(_baseline(item))


def _baseline(item: Baseline | None) -> list[tuple[str, str]]:
    if item is None:
        return []
    figures = f": {with_unit(item.metrics.tokens_per_s, 'tokens/s')}" if item.metrics else ""
    return [
        ("baseline", f"{strategy_line(item.strategy)}{figures}"),
        ("against it", item.comparison),
    ]


def recommendation(answer: Recommendation) -> RenderableType:
    """Return the best strategy, the predicted training with it, and the runners-up."""
    status = "provisional" if answer.provisional else "confirmed by another run"
    if not answer.provisional and not answer.best.confirmed:
        status = "run once"
    if answer.best.projected_from_nodes:
        in_full = "in full" if answer.best.projected_from_layers else "on its own yet"
        status = f"{projected_from(answer.best)}, not run {in_full}"
    best = [
        ("best", strategy_line(answer.best.strategy)),
        *metrics_facts(answer.best.metrics, simulated=answer.simulated),
        ("status", status),
        *_training(answer.training),
        (
            "found by",
            f"{answer.trials} trials, {answer.failures} failed, "
            f"{with_unit(answer.node_hours, 'node-hours')}",
        ),
        ("files", ", ".join(answer.artefacts)),
        *([("launch", answer.launch.remark)] if answer.launch else []),
    ]
    return Group(
        facts([*best, *_standing(answer)]),
        *(
            [_neighbours(answer.standing, simulated=answer.simulated)]
            if answer.standing and answer.standing.neighbours
            else []
        ),
        *([baseline(answer.baseline)] if answer.baseline else []),
        *([_runners_up(answer.runners_up)] if answer.runners_up else []),
        *fronts(answer),
        *(Text(f"note: {caveat}") for caveat in answer.caveats),
    )


FRONTS: Mapping[ParetoCost, str] = {
    "num_nodes": "fastest on this many nodes",
    "joules_per_token": "fastest at this energy",
}


def fronts(answer: Recommendation) -> Iterator[Group]:
    """Yield one table per Pareto front of more than one layout."""
    for front in answer.pareto:
        if len(front.points) > 1:
            yield _front(front)


def _front(front: ParetoFront) -> Group:
    with_energy = any(point.joules_per_token is not None for point in front.points)

    def notes(point: FrontPoint) -> str:
        predicted = with_energy and not point.energy_sampled
        said = ("" if point.confirmed else "not confirmed", "energy predicted" if predicted else "")
        return ", ".join(filter(None, said))

    columns: list[tuple[str, Callable[[FrontPoint], str]]] = [
        (f"·{FRONTS[front.against]}", lambda point: strategy_line(point.strategy)),
        (">nodes", lambda point: str(point.strategy.num_nodes)),
        (">tokens/s", lambda point: figure(point.tokens_per_s)),
    ]
    if with_energy:
        columns.append((">J/token, hosts included", lambda point: figure(point.joules_per_token)))
    return table(front.points, [*columns, ("", notes)])


def recommendation_in_brief(answer: Recommendation) -> Table:
    """Return the key metrics, without runners-up and caveats."""
    metrics = answer.best.metrics
    utilisation = f" · MFU {percent(metrics.mfu)}" if metrics.mfu else ""
    return facts(
        [
            ("best layout", strategy_line(answer.best.strategy)),
            ("throughput", f"{with_unit(metrics.tokens_per_s, 'tokens/s')}{utilisation}"),
            ("iteration", f"{seconds(metrics.iteration_time_s)} ({mark(answer.simulated)})"),
            ("peak memory", with_unit(metrics.peak_memory_gib, "GiB on the fullest rank")),
            *_standing(answer),
            *_baseline(answer.baseline),
            ("to train", _cost(answer.training) + _saving(answer.saving)),
            ("found by", f"{answer.trials} trials, {answer.failures} of them failed"),
        ]
    )


def outlook(answer: Recommendation) -> Table:
    """Return how certain it is that nothing better exists, and the predicted training with the
    best."""
    return facts([*_standing(answer), *_training(answer.training)])


def _standing(answer: Recommendation) -> list[tuple[str, str]]:
    if answer.standing is None:
        return []
    origin = "Simulated: " if answer.simulated else ""
    return [("in its space", f"{origin}{answer.standing.sentence}")]


def _neighbours(found: SpaceStanding, *, simulated: bool) -> Group:
    def interval(item: Neighbour) -> str:
        low, high = item.relative_low, item.relative_high
        return NO_VALUE if low is None else f"{percent(low)} to {percent(high)}"

    columns: tuple[tuple[str, Callable[[Neighbour], str]], ...] = (
        ("one step away", lambda item: item.step),
        ("", lambda item: neighbour_state(item, simulated=simulated)),
        (">of the best", lambda item: percent(item.relative_to_best)),
        (">80 % interval", interval),
        (">fits", fits),
    )
    return table(found.neighbours, columns)


def runner_up(answer: Recommendation, item: Ranked) -> Table:
    """Return a strategy after the best, and how it compares with it."""
    return facts(
        [
            (f"rank {item.rank}", strategy_line(item.strategy)),
            *metrics_facts(item.metrics, simulated=answer.simulated),
            ("status", standing_of(item)),
            ("of the best", percent(item.relative_to_best)),
            ("the best", strategy_line(answer.best.strategy)),
        ]
    )


def _cost(training: TrainingCost) -> str:
    assumed = " (assumed: 20 for each parameter; --tokens of submit says how many)"
    return (
        f"{parameters(training.tokens)} tokens{assumed if training.assumed else ''}: "
        f"{figure(training.days)} days, {with_unit(training.node_hours, 'node-hours')}"
    )


def _training(training: TrainingCost) -> list[tuple[str, str]]:
    energy = training_energy(training)
    return [("to train", _cost(training)), *([("energy", energy)] if energy else [])]


def _saving(saving: TrainingSaving | None) -> str:
    if saving is None or saving.days <= 0.0:
        return ""
    node_hours = with_unit(saving.node_hours, "node-hours")
    return f"; {figure(saving.days)} days and {node_hours} less than with the baseline"


def _runners_up(items: Sequence[Ranked]) -> Group:
    columns: tuple[tuple[str, Callable[[Ranked], str]], ...] = (
        (">rank", lambda item: str(item.rank)),
        ("·runners-up", lambda item: strategy_line(item.strategy)),
        (">tokens/s", lambda item: figure(item.metrics.tokens_per_s)),
        (">of the best", lambda item: percent(item.relative_to_best)),
        (">peak GiB", lambda item: figure(item.metrics.peak_memory_gib)),
        ("", standing_of),
    )
    return table(items, columns)
