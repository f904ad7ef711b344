"""Back up, restore and prune the database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search_spaces.errors import InvalidInput
from server.cli.commands.serve import refusing_databases
from server.cli.failures import Failed
from server.cli.options import StorageOptions
from server.cli.output import Json, document, note, out

if TYPE_CHECKING:
    from server.settings import Settings
    from server.store import Store

UNITS_D = {"h": 1 / 24, "d": 1.0, "w": 7.0}


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to create.")],
    storage: StorageOptions,
    json: Json = False,
) -> None:
    """Write the database into one file, while the service runs.

    The file has every row at one moment: campaigns, trials with all their metrics, events,
    calibrations. It does not have the trials' logs and files; copy the data folder's `trials/` if
    you want them.

    The file is an SQLite file, and can be restored into either kind of database.
    """
    from server.cli.tables import service as service_table
    from server.store.backup import back_up

    settings = storage.settings()
    with existing(settings) as store:
        rows = back_up(store, file)
    size_bytes = file.stat().st_size
    if json:
        return document({"file": str(file), "size_bytes": size_bytes} | rows)
    note(f"{file} ({service_table.size(size_bytes)}) holds {service_table.copied(rows)}")
    return note(f"not in it: logs and files of trials, in {settings.trials_dir}")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File from `autotune backup`.")],
    storage: StorageOptions,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Discard the current campaigns and calibrations."),
    ] = False,
    json: Json = False,
) -> None:
    """Replace a database by a backup, completely or not at all; the service must be stopped.

    A backup of an earlier version is upgraded. Campaigns that were active at the backup continue
    with the next `autotune serve`: trials whose folders exist are found again, the others run once
    more. To prevent that, pause or cancel them before the backup.
    """
    from server.cli.tables import service as service_table
    from server.store import Store
    from server.store.backup import restore as put_in_place
    from server.store.ownership import ownership

    settings = storage.settings()
    with refusing_databases(), closing(Store(settings.url)) as store:
        with ownership(store, "serve"), ownership(store, "runner"):
            rows = put_in_place(store, file, replace=replace)
        shown = store.shown
    if json:
        return document({"database": shown} | rows)
    note(f"{shown} holds {service_table.copied(rows)}")
    return note(f"their trials' logs and files belong into {settings.trials_dir}")


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
    trials; calibrations stay. Equally old trial folders without a campaign and equally old audit
    entries are deleted, too. The service may be running.
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
