"""Requests that run nothing: what is predicted of a strategy or a space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.client.calls.call import Call, post
from autotune.client.calls.subject import SlurmInput, subject
from autotune.client.files import MachineInput, ModelInput
from autotune.schemas import (
    EvaluatorName,
    Prediction,
    PredictionQuery,
    ScalingQuery,
    ScalingStudy,
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
    machine: MachineInput | None,
    strategy: StrategyShape | Mapping[str, Any],
    calibration: str | None,
    min_headroom_gib: float,
    evaluator: EvaluatorName | None,
    slurm: SlurmInput | None,
) -> Call[Prediction]:
    fields = {
        **subject(model, machine, evaluator=evaluator, slurm=slurm),
        "strategy": strategy,
        "min_headroom_gib": min_headroom_gib,
        "calibration": calibration,
    }
    return post("/predictions", validated(PredictionQuery, fields), Prediction)


def scaling(
    *,
    model: ModelInput,
    machine: MachineInput | None,
    strategy: StrategyShape | Mapping[str, Any],
    nodes: Sequence[int],
    calibration: str | None,
    evaluator: EvaluatorName | None,
    slurm: SlurmInput | None,
) -> Call[ScalingStudy]:
    fields = {
        **subject(model, machine, evaluator=evaluator, slurm=slurm),
        "strategy": strategy,
        "nodes": list(nodes),
        "calibration": calibration,
    }
    return post("/predictions/scaling", validated(ScalingQuery, fields), ScalingStudy)


def space(
    *,
    model: ModelInput,
    machine: MachineInput | None,
    nodes: int,
    space: SpaceSpec | Mapping[str, Any] | None,
    evaluator: EvaluatorName | None,
    slurm: SlurmInput | None,
) -> Call[SpaceReport]:
    fields = {
        **subject(model, machine, evaluator=evaluator, slurm=slurm),
        "nodes": nodes,
        "space": space or {},
    }
    return post("/spaces", validated(SpaceQuery, fields), SpaceReport)


def sweep(
    *,
    model: ModelInput,
    machine: MachineInput | None,
    nodes: int,
    space: SpaceSpec | Mapping[str, Any] | None,
    calibration: str | None,
    most: int,
    evaluator: EvaluatorName | None,
    slurm: SlurmInput | None,
) -> Call[Sweep]:
    fields = {
        **subject(model, machine, evaluator=evaluator, slurm=slurm),
        "nodes": nodes,
        "space": space or {},
        "calibration": calibration,
        "most": most,
    }
    return post("/sweeps", validated(SweepQuery, fields), Sweep)
