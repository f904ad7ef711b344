"""The cluster profiles, without a service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from server.cli.figures import NO_VALUE
from server.cli.output import Json, document, note, out, text


def profiles(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Print this profile's file.")
    ] = None,
    json: Json = False,
) -> None:
    """List the profiles of clusters, or print one to start a file of your own from.

    Your own files lie in the profiles folder beside the configuration (AUTOTUNE_PROFILES_DIR
    names another); one with the name of a ready profile takes its place.
    """
    from server.settings import Settings

    folder = Settings().profiles_dir
    if name is None:
        _all(folder, json=json)
    else:
        _one(name, folder, json=json)


def _one(name: str, folder: Path, *, json: bool) -> None:
    from evaluators.cluster import profile_file
    from server.profiles import profile_detail

    if json:
        return document(profile_detail(name, folder))
    return text(profile_file(name, folder=folder).read_text(encoding="utf-8"))


def _all(folder: Path, *, json: bool) -> None:
    """One that is broken is among them, with what is wrong with it."""
    from server.profiles import profile_summaries

    found = profile_summaries(folder)
    if json:
        return document(found)
    table = Table("profile", "machine", "trains with", "from", "", box=None, pad_edge=False)
    for one in found:
        usable = not one.problem
        table.add_row(
            one.name,
            (one.machine or "any") if usable else NO_VALUE,
            one.program or NO_VALUE,
            "you" if one.source else "autotune",
            Text(one.problem or one.description),
            style=None if usable else "red",
        )
    out().print(table)
    return note(f"your own go into {folder}")
