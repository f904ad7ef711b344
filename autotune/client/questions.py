"""What a caller may say, and the wire model it becomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from pydantic import BaseModel, ValidationError

from autotune.refusals import field_problems
from autotune.schemas import (
    Budget,
    CalibrationCreate,
    CalibrationDocument,
    CampaignCreate,
    EvaluatorName,
    MachineShape,
    ModelShape,
    Objective,
    PredictionQuery,
    ProtocolSpec,
    SlurmChoice,
    SpaceQuery,
    SpaceSpec,
    StrategyShape,
    SweepQuery,
)
from search_spaces.errors import InvalidInput, InvalidInputs

Model = str | Path | ModelShape
"""A preset's name, a bare size such as "13B", a file (read here, not by the service), a shape."""
Machine = str | Path | MachineShape
WireModel = TypeVar("WireModel", bound=BaseModel)


class RequiredOfCampaign(TypedDict):
    model: Model
    machine: Machine
    evaluator: EvaluatorName


class CampaignQuestion(RequiredOfCampaign, total=False):
    """Keywords of `create` and `dry_run`; the fields of `autotune.schemas.CampaignCreate`."""

    name: str
    nodes: int
    pool_nodes: int | None
    slurm: SlurmChoice | Mapping[str, Any] | None
    objective: Objective
    space: SpaceSpec | Mapping[str, Any]
    budget: Budget | Mapping[str, Any]
    protocol: ProtocolSpec | Mapping[str, Any]
    tokens: float
    seed: int
    time_scale: float


def campaign_request(question: CampaignQuestion) -> CampaignCreate:
    """The question as the service takes it; raises InvalidInputs naming each field refused."""
    plain: dict[str, Any] = dict(question)
    plain["model"] = model_choice(question["model"])
    plain["machine"] = machine_choice(question["machine"])
    return validated(CampaignCreate, plain)


def space_query(
    *, model: Model, machine: Machine, nodes: int, space: SpaceSpec | Mapping[str, Any]
) -> SpaceQuery:
    return validated(
        SpaceQuery,
        {
            "model": model_choice(model),
            "machine": machine_choice(machine),
            "nodes": nodes,
            "space": space,
        },
    )


def sweep_query(
    *,
    model: Model,
    machine: Machine,
    nodes: int,
    space: SpaceSpec | Mapping[str, Any],
    calibration: str | None,
    most: int,
) -> SweepQuery:
    return validated(
        SweepQuery,
        {
            "model": model_choice(model),
            "machine": machine_choice(machine),
            "nodes": nodes,
            "space": space,
            "calibration": calibration,
            "most": most,
        },
    )


def prediction_query(
    *,
    model: Model,
    machine: Machine,
    strategy: StrategyShape | Mapping[str, Any],
    calibration: str | None,
) -> PredictionQuery:
    return validated(
        PredictionQuery,
        {
            "model": model_choice(model),
            "machine": machine_choice(machine),
            "strategy": strategy,
            "calibration": calibration,
        },
    )


def calibration_create(
    *, name: str, campaigns: Iterable[int], software: str | None
) -> CalibrationCreate:
    asked = {"name": name, "campaigns": list(campaigns), "software": software}
    return validated(CalibrationCreate, asked)


def calibration_document(
    document: CalibrationDocument | Mapping[str, Any],
) -> CalibrationDocument:
    if isinstance(document, CalibrationDocument):
        return document
    return validated(CalibrationDocument, document)


def model_choice(model: Model) -> str | ModelShape:
    """A model's file is read here into its shape; names and sizes go to the service as they are.

    Raises:
        InvalidInput: the file cannot be read as a model.
    """
    if not isinstance(model, Path):
        return model
    from autotune.resolution import model_shape
    from search_spaces.catalog import read_model

    return model_shape(read_model(model))


def machine_choice(machine: Machine) -> str | MachineShape:
    """Likewise for a machine; raises InvalidInput for a file that is none."""
    if not isinstance(machine, Path):
        return machine
    from autotune.resolution import machine_shape
    from search_spaces.catalog import read_machine

    return machine_shape(read_machine(machine))


def validated(wire_model: type[WireModel], plain: Mapping[str, Any]) -> WireModel:
    """`plain` as a wire model; raises InvalidInputs naming each field that it refuses."""
    try:
        return wire_model.model_validate(plain)
    except ValidationError as error:
        raise InvalidInputs(
            InvalidInput(found.field, found.value, found.reason, valid=found.valid)
            for found in field_problems(error.errors())
        ) from None
