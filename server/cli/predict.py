"""One strategy, or a whole space of them, predicted without a trial."""

from __future__ import annotations

import typer

from autotune.schemas import PredictionQuery, SpaceQuery
from autotune.validation import validated
from server.cli import rankings, reports
from server.cli.calibrated import Basis, CalibrationOptions
from server.cli.failures import Exit
from server.cli.options import MachineOptions, ModelOptions
from server.cli.output import Json, document, out
from server.cli.strategies import StrategyOptions, SweepOptions

MOST = 20
"""Strategies of a sweep that are printed where nothing is said."""


def predict(
    model: ModelOptions,
    machine: MachineOptions,
    strategy: StrategyOptions,
    sweep: SweepOptions,
    calibration: CalibrationOptions,
    json: Json = False,
) -> None:
    """Predict one strategy, or rank all of a space: is it legal, does it fit, how fast is it?

    Beside each figure stands an interval that is to hold 80 % of measurements. It is wide while
    nothing but the machine's kind is known; --calibration makes it as narrow as trials on the
    machine allow.

    With --sweep the options of the strategy say what may be tried, as those of `autotune space` do;
    a dimension that is not given is automatic.

    Needs no service, but for a calibration by name. Exit code 1 where the strategy is illegal or
    probably does not fit.
    """
    if sweep.sweep:
        _sweep(_space_query(model, machine, strategy, sweep), sweep, calibration, json=json)
        return
    sweep.refuse_without_sweep()
    shape = strategy.shape()
    query = PredictionQuery(model=model.choice(), machine=machine.choice(), strategy=shape)
    _one(query, calibration.basis(), json=json)


def _one(query: PredictionQuery, basis: Basis, *, json: bool) -> None:
    from autotune.prediction import predict as predicted

    answer = predicted(query, basis.calibration, basis.summary)
    if json:
        document(answer)
    else:
        out().print(reports.prediction(answer))
    if not (answer.legal and answer.fits):
        raise typer.Exit(Exit.FAILED)


def _space_query(
    model: ModelOptions, machine: MachineOptions, strategy: StrategyOptions, sweep: SweepOptions
) -> SpaceQuery:
    return validated(
        SpaceQuery,
        {
            "model": model.choice(),
            "machine": machine.choice(),
            "nodes": 1 if sweep.nodes is None else sweep.nodes,
            "space": strategy.spec(preset=sweep.preset, global_batch=sweep.global_batch),
        },
    )


def _sweep(
    query: SpaceQuery, options: SweepOptions, calibration: CalibrationOptions, *, json: bool
) -> None:
    from autotune.prediction.sweep import sweep

    basis = calibration.basis()
    answer = sweep(query, basis.calibration, basis.summary, most=options.top or MOST)
    if json:
        document(answer)
    else:
        out().print(rankings.sweep(answer))
