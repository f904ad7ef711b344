"""Cluster profiles that campaigns may name."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from autotune.schemas.catalog import ProfileDetail, ProfileSummary
from evaluators.cluster import profile_file
from search_spaces.errors import InvalidInput
from server.api.dependencies import SettingsOf, problems
from server.profiles import profile_detail, profile_summaries
from server.store import NotFound

router = APIRouter(prefix="/profiles", tags=["profiles"])

ProfileName = Annotated[
    str, Path(description="A name in the list of profiles.", examples=["generic"])
]


@router.get("", response_description="All profiles.", responses=problems())
def listing(settings: SettingsOf) -> list[ProfileSummary]:
    """List all profiles by name; an invalid one has its error."""
    return profile_summaries(settings.profiles_dir)


@router.get("/{name}", responses=problems(404))
def read(name: ProfileName, settings: SettingsOf) -> ProfileDetail:
    """Return the content of a profile; 422 with the errors of an invalid file."""
    try:
        profile_file(name, folder=settings.profiles_dir)
    except InvalidInput as error:
        reason = f"{error.reason} (valid: {error.valid})"
        raise NotFound("profile", name, reason=reason) from error
    return profile_detail(name, settings.profiles_dir)
