"""Strong and weak scaling of one layout over numbers of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from autotune.calibration import Calibration, calibration_for
from autotune.explanation import ScalingCurve, scaling
from autotune.resolution import machine_shape, model_shape, strategy_of, strategy_shape, subject_of
from autotune.schemas import (
    CalibrationSummary,
    ScaledStrategy,
    ScalingKind,
    ScalingQuery,
    ScalingSeries,
    ScalingStudy,
    TrialState,
    UnscaledStrategy,
)
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

HALVINGS = 3
DOUBLINGS = 4
"""Doublings of the strategy's own number of nodes, used if no nodes are given."""


def scaling_study(
    query: ScalingQuery,
    calibration: Calibration | None = None,
    summary: CalibrationSummary | None = None,
    *,
    program: ProgramCapabilities = ANY_PROGRAM,
) -> ScalingStudy:
    """Predict how a strategy's layout scales.

    Args:
        calibration, summary, program: as for `predict`.

    Raises:
        InvalidInputs: fields `model` and `machine`.
        InvalidInput: fields `nodes`, of which the layout can run on none; `calibration`.
    """
    transformer, machine = subject_of(query.model, query.machine)
    name = summary.name if summary else None
    calibration = calibration_for(machine, calibration, name=name, program=program)
    strategy = strategy_of(query.strategy)
    return ScalingStudy(
        model=model_shape(transformer),
        machine=machine_shape(machine),
        strategy=query.strategy,
        calibration=summary,
        series=scaling_series(
            calibration, transformer, strategy, nodes=query.nodes, program=program
        ),
    )


def scaling_series(
    calibration: Calibration,
    transformer: Transformer,
    strategy: Strategy,
    *,
    nodes: Sequence[int],
    kinds: Sequence[ScalingKind] = get_args(ScalingKind),
    measured: Mapping[Strategy, float] | None = None,
    failed: Mapping[Strategy, TrialState] | None = None,
    simulated: bool = False,
    program: ProgramCapabilities = ANY_PROGRAM,
) -> list[ScalingSeries]:
    """Return strong and weak scaling of a layout; only one of them if the layout cannot run in the
    other way.

    Args:
        calibration: of the machine, with the observations `measured`: strategy -> seconds per step.
        nodes: numbers of nodes; halves and doubles of the strategy's own by default.
        kinds: the kinds of scaling to return.
        failed, simulated: as for `scaling`.

    Raises:
        InvalidInput: field `nodes`: the layout cannot run on any of them.
    """
    machine = calibration.machine
    beyond = [each for each in nodes if not 1 <= each <= machine.max_nodes]
    if beyond:
        reason = f"{machine.name} has {machine.max_nodes} nodes"
        raise InvalidInput("nodes", beyond[0], reason, valid=f"1 to {machine.max_nodes}")
    wanted = list(nodes) or list(usual_widths(strategy, machine))
    series: list[ScalingSeries] = []
    refused: InvalidInput | None = None
    for kind in kinds:
        try:
            curve = scaling(
                calibration,
                transformer,
                strategy,
                kind=kind,
                nodes=wanted,
                measured=measured,
                failed=failed,
                simulated=simulated,
                program=program,
            )
        except InvalidInput as refusal:
            refused = refusal
        else:
            series.append(_series(curve))
    if refused is not None and not series:
        raise refused
    return series


def usual_widths(strategy: Strategy, machine: Machine) -> Iterator[int]:
    """Yield halves and doubles of a strategy's own number of nodes."""
    own = strategy.num_nodes
    for power in range(-HALVINGS, DOUBLINGS + 1):
        nodes = own << power if power >= 0 else own >> -power
        whole = power >= 0 or own % (1 << -power) == 0
        if whole and 1 <= nodes <= machine.max_nodes:
            yield nodes


def _series(curve: ScalingCurve) -> ScalingSeries:
    return ScalingSeries(
        kind=curve.kind,
        strategy=strategy_shape(curve.strategy),
        points=[
            ScaledStrategy(**vars(point) | {"strategy": strategy_shape(point.strategy)})
            for point in curve.points
        ],
        failed=[
            UnscaledStrategy(num_nodes=each.num_nodes, strategy=strategy_shape(each), state=state)
            for each, state in curve.failed.items()
        ],
        omitted=dict(curve.omitted),
        sentence=curve.sentence,
    )
