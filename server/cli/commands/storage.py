"""Prune the database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search_spaces.errors import InvalidInput
from server.cli.failures import Failed
from server.cli.options import StorageOptions
from server.cli.output import Json, document, note, out

if TYPE_CHECKING:
    from server.settings import Settings
    from server.store import Store

UNITS_D = {"h": 1 / 24, "d": 1.0, "w": 7.0}


def prune(
    storage: StorageOptions,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            help="Minimum time since they ended: days (90d), weeks (26w) or hours (12h).",
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be deleted, and change nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Delete campaigns that ended long ago, with their trials' logs and files.

    Ended campaigns are done, cancelled or failed. Later campaigns no longer start from their
    trials. Equally old trial folders without a campaign are deleted, too. The service may be
    running.
    """
    from server.cli.tables import service as service_table
    from server.pruning import prunable
    from server.pruning import prune as delete

    settings = storage.settings()
    before = datetime.now(UTC) - length_of_time(older_than)
    with existing(settings) as store:
        found = prunable(store, settings, before=before)
        gone = found if dry_run else delete(store, settings, found)
    if json:
        return document({"dry_run": dry_run} | service_table.pruned_document(gone))
    if gone.campaigns:
        out().print(service_table.pruned(gone))
    return note(service_table.pruned_sentence(gone, dry_run=dry_run))


def length_of_time(text: str, *, field: str = "older_than") -> timedelta:
    """Parse a duration: `90d`, `12w` or `36h`; raises InvalidInput."""
    found = re.fullmatch(r"(\d{1,6})\s*([hdw])", text.strip())
    if not found:
        valid = "days, weeks or hours, such as 90d, 12w or 36h"
        raise InvalidInput(field, text, "this is not a duration", valid=valid)
    days = int(found[1]) * UNITS_D[found[2]]
    if days > (datetime.now(UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days:
        raise InvalidInput(field, text, "nothing is that old", valid="at most some years")
    return timedelta(days=days)


@contextmanager
def existing(settings: Settings) -> Iterator[Store]:
    """Open an existing database; it is never created.

    Raises:
        Failed: there is none, or its schema is of another version.
    """
    from server.store import Store
    from server.store.engine import parse_url

    url = parse_url(settings.url)
    if url.get_dialect().name == "sqlite" and not Path(str(url.database)).exists():
        raise Failed(f"there is no database {url.database}; choose one with --data-dir")
    with closing(Store(settings.url)) as store:
        if fault := store.schema_fault():
            raise Failed(f"the database {store.shown} cannot be used: {fault}")
        yield store
