"""Requests that run nothing: what is predicted of a strategy or a space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.client.calls.call import Call, post
from autotune.client.calls.subject import subject
from autotune.client.files import MachineInput, ModelInput
from autotune.schemas import (
    EvaluatorName,
    Prediction,
    PredictionQuery,
    ScalingQuery,
    ScalingStudy,
    SlurmChoice,
    SpaceQuery,
    SpaceReport,
    SpaceSpec,
    StrategyShape,
    Sweep,
    SweepQuery,
)
from autotune.validation import validated


def predict(
    *,
    model: ModelInput,
    machine: MachineInput,
    strategy: StrategyShape | Mapping[str, Any],
    calibration: str | None,
    min_headroom_gib: float,
    evaluator: EvaluatorName,
    slurm: SlurmChoice | Mapping[str, Any] | None,
) -> Call[Prediction]:
    fields = {
        **subject(model, machine),
        "strategy": strategy,
        "min_headroom_gib": min_headroom_gib,
        "calibration": calibration,
        "evaluator": evaluator,
        "slurm": slurm,
    }
    return post("/predictions", validated(PredictionQuery, fields), Prediction)


def scaling(
    *,
    model: ModelInput,
    machine: MachineInput,
    strategy: StrategyShape | Mapping[str, Any],
    nodes: Sequence[int],
    calibration: str | None,
    evaluator: EvaluatorName,
    slurm: SlurmChoice | Mapping[str, Any] | None,
) -> Call[ScalingStudy]:
    fields = {
        **subject(model, machine),
        "strategy": strategy,
        "nodes": list(nodes),
        "calibration": calibration,
        "evaluator": evaluator,
        "slurm": slurm,
    }
    return post("/predictions/scaling", validated(ScalingQuery, fields), ScalingStudy)


def space(
    *,
    model: ModelInput,
    machine: MachineInput,
    nodes: int,
    space: SpaceSpec | Mapping[str, Any] | None,
    evaluator: EvaluatorName,
    slurm: SlurmChoice | Mapping[str, Any] | None,
) -> Call[SpaceReport]:
    fields = {
        **subject(model, machine),
        "nodes": nodes,
        "space": space or {},
        "evaluator": evaluator,
        "slurm": slurm,
    }
    return post("/spaces", validated(SpaceQuery, fields), SpaceReport)


def sweep(
    *,
    model: ModelInput,
    machine: MachineInput,
    nodes: int,
    space: SpaceSpec | Mapping[str, Any] | None,
    calibration: str | None,
    most: int,
    evaluator: EvaluatorName,
    slurm: SlurmChoice | Mapping[str, Any] | None,
) -> Call[Sweep]:
    fields = {
        **subject(model, machine),
        "nodes": nodes,
        "space": space or {},
        "calibration": calibration,
        "most": most,
        "evaluator": evaluator,
        "slurm": slurm,
    }
    return post("/sweeps", validated(SweepQuery, fields), Sweep)
