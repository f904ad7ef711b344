"""The catalog: models, machines and ready spaces."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from autotune.resolution import machine_shape, model_shape
from autotune.schemas.shapes import MachineShape, ModelShape
from search_spaces.catalog import load_machine, load_model, machine_names, model_names, space_names
from search_spaces.errors import InvalidInput
from server.api.dependencies import problems
from server.store import NotFound

router = APIRouter(tags=["catalog"])

ModelName = Annotated[
    str,
    Path(description="A name of the catalog, or a bare size such as `13B`.", examples=["gpt-175b"]),
]
MachineName = Annotated[str, Path(description="A name of the catalog.", examples=["frontier"])]


@router.get("/models", response_description="Names.")
def models() -> list[str]:
    """List the names of models; bare sizes such as 13B are also accepted."""
    return model_names()


@router.get("/models/{name}", responses=problems(404))
def model(name: ModelName) -> ModelShape:
    """Return the shape of a model, or of a bare size."""
    try:
        return model_shape(load_model(name))
    except InvalidInput as error:
        raise NotFound("model", name, reason=str(error)) from error


@router.get("/machines", response_description="Names.")
def machines() -> list[str]:
    """List the names of machines; `local` is the one that the service runs on."""
    return machine_names()


@router.get("/machines/{name}", responses=problems(404))
def machine(name: MachineName) -> MachineShape:
    """Return a machine."""
    try:
        return machine_shape(load_machine(name))
    except InvalidInput as error:
        raise NotFound("machine", name, reason=str(error)) from error


@router.get("/spaces", response_description="Names.")
def spaces() -> list[str]:
    """List the names of ready search spaces."""
    return space_names()
