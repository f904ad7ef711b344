"""Scaling of a layout as text."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from autotune.schemas.predictions import DryRun
from autotune.schemas.scaling import ScalingSeries, ScalingStudy
from server.cli.tables.elements import (
    NO_VALUE,
    facts,
    figure,
    headed,
    mark,
    model_line,
    probability,
    rests_on,
    seconds,
    strategy_line,
)

TITLES = {"strong": "strong: the same global batch", "weak": "weak: a batch for each node"}


def scaling(study: ScalingStudy) -> RenderableType:
    """Return one table per kind of scaling, with its sentence."""
    basis = rests_on(study.calibration, study.machine)
    if study.campaign_id is not None:
        basis = f"the trials of campaign {study.campaign_id}"
    return Group(
        facts(
            [
                ("model", model_line(study.model)),
                ("machine", study.machine.name),
                ("strategy", strategy_line(study.strategy)),
                ("rests on", basis),
            ]
        ),
        *(
            part
            for series in study.series
            for part in ("", _table(series, simulated=study.simulated), Text(series.sentence))
        ),
    )


def planned(answer: DryRun) -> RenderableType:
    """Return what a study would measure, and its cost."""
    study = answer.study
    assert study is not None
    table = headed(">nodes", ">GPUs", ">batch", ">GAS", ">iteration", ">GiB", "fits", ">node-hours")
    for trial in study.trials:
        table.add_row(
            f"{trial.strategy.num_nodes:,}",
            f"{trial.gpus:,}",
            f"{trial.global_batch_size:,}",
            str(trial.strategy.gradient_accumulation_steps),
            seconds(trial.iteration_time_s),
            figure(trial.memory_gib),
            "yes" if trial.fits else "probably not",
            figure(trial.node_hours),
        )
    costs = [
        ("would cost", f"{figure(answer.node_hours_expected)} node-hours"),
        ("budget buys", f"{answer.trials_affordable} of {len(study.trials)} trials"),
    ]
    return Group(table, facts(costs), *(Text(omitted) for omitted in study.omitted))


def _table(series: ScalingSeries, *, simulated: bool) -> RenderableType:
    table = headed(
        *(">nodes", ">GPUs", ">batch", ">GAS", ">iteration", ">tokens/s", ">efficiency"),
        *(">80 % interval", ">fits", ""),
        title=TITLES[series.kind],
    )
    for point in series.points:
        table.add_row(
            f"{point.num_nodes:,}",
            f"{point.gpus:,}",
            f"{point.global_batch_size:,}",
            str(point.strategy.gradient_accumulation_steps),
            seconds(point.iteration_time_s),
            figure(point.tokens_per_s),
            f"{100 * point.efficiency:.1f} %",
            f"{100 * point.efficiency_low:.1f} to {100 * point.efficiency_high:.1f} %",
            probability(point.fit_probability),
            mark(simulated) if point.measured else "predicted",
        )
    for each in series.failed:
        gas = str(each.strategy.gradient_accumulation_steps)
        table.add_row(f"{each.num_nodes:,}", "", "", gas, *[NO_VALUE] * 5, each.state.value)
    notes = [Text(f"not on {nodes:,}: {reason}") for nodes, reason in series.omitted.items()]
    return Group(table, *notes)
