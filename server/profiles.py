"""The cluster profiles of this service's user, as they are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.schemas.catalog import ProfileDetail, ProfileSummary
from evaluators.cluster import load_profile, profile_as_dict, profile_file, profile_names
from search_spaces.errors import InvalidInput, InvalidInputs


def profile_summaries(folder: Path) -> list[ProfileSummary]:
    """Return all profiles by name, including those in `folder`; invalid ones with their error."""
    summaries = []
    for name in profile_names(folder):
        source = _source(name, folder)
        try:
            content = profile_as_dict(load_profile(name, folder=folder))
        except (InvalidInput, InvalidInputs) as error:
            summaries.append(ProfileSummary(name=name, source=source, problem=str(error)))
        else:
            summaries.append(ProfileSummary(**_head(content), name=name, source=source))
    return summaries


def profile_detail(name: str, folder: Path) -> ProfileDetail:
    """Return the content of one profile.

    Raises:
        InvalidInput, InvalidInputs: there is no such profile, or its file is invalid.
    """
    content = profile_as_dict(load_profile(name, folder=folder))
    return ProfileDetail(**_head(content), name=name, source=_source(name, folder), content=content)


def _source(name: str, folder: Path) -> str:
    """Return the file of a user's own profile; empty for a bundled one."""
    path = profile_file(name, folder=folder)
    return str(path) if path.parent == folder else ""


def _head(content: dict[str, Any]) -> dict[str, str]:
    return {key: str(content[key]) for key in ("description", "machine", "program")}
