"""The catalog: models, machines, ready spaces, cluster profiles and adapters."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from autotune.schemas.catalog import AdapterSummary, ProfileSummary
from evaluators.cluster import profile_file
from search_spaces.catalog import load_machine, load_model, machine_names, model_names, space_names
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from search_spaces.transformer import Transformer
from server.api.dependencies import SettingsOf, problems
from server.catalog import adapter_summaries, profile_detail, profile_summaries
from server.store import NotFound

router = APIRouter()

ModelName = Annotated[
    str,
    Path(description="A name of the catalog, or a bare size such as `13B`.", examples=["gpt-175b"]),
]
MachineName = Annotated[str, Path(description="A name of the catalog.", examples=["frontier"])]
ProfileName = Annotated[
    str, Path(description="A name in the list of profiles.", examples=["generic"])
]


@router.get("/models", tags=["catalog"], response_description="Names.")
def models() -> list[str]:
    """List the names of models; bare sizes such as 13B are also accepted."""
    return model_names()


@router.get("/models/{name}", tags=["catalog"], responses=problems(404))
def model(name: ModelName) -> Transformer:
    """Return the shape of a model, or of a bare size."""
    try:
        return load_model(name)
    except InvalidInput as error:
        raise NotFound("model", name, reason=str(error)) from error


@router.get("/machines", tags=["catalog"], response_description="Names.")
def machines() -> list[str]:
    """List the names of machines; `local` is the one that the service runs on."""
    return machine_names()


@router.get("/machines/{name}", tags=["catalog"], responses=problems(404))
def machine(name: MachineName) -> Machine:
    """Return a machine."""
    try:
        return load_machine(name)
    except InvalidInput as error:
        raise NotFound("machine", name, reason=str(error)) from error


@router.get("/spaces", tags=["catalog"], response_description="Names.")
def spaces() -> list[str]:
    """List the names of ready search spaces."""
    return space_names()


@router.get(
    "/profiles",
    operation_id="profiles.listing",
    tags=["profiles"],
    response_description="All profiles.",
    responses=problems(),
)
def profiles(settings: SettingsOf) -> list[ProfileSummary]:
    """List all profiles by name; an invalid one has its error."""
    return profile_summaries(settings.profiles_dir)


@router.get(
    "/profiles/{name}",
    operation_id="profiles.read",
    tags=["profiles"],
    responses=problems(404),
)
def profile(name: ProfileName, settings: SettingsOf) -> ProfileSummary:
    """Return the content of a profile; 422 with the errors of an invalid file."""
    try:
        profile_file(name, folder=settings.profiles_dir)
    except InvalidInput as error:
        reason = f"{error.reason}; valid: {error.valid}"
        raise NotFound("profile", name, reason=reason) from error
    return profile_detail(name, settings.profiles_dir)


@router.get(
    "/adapters",
    operation_id="adapters.listing",
    tags=["adapters"],
    response_description="All adapters.",
    responses=problems(),
)
def adapters(settings: SettingsOf) -> list[AdapterSummary]:
    """List all adapters by name with the dimensions that each can vary; an invalid one has its
    error. The commands in their files are not included."""
    return adapter_summaries(settings.adapters_dir)
