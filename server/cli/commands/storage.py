"""What is kept: backed up, restored, and pruned."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search_spaces.errors import InvalidInput
from server.cli import tables
from server.cli.commands.serve import refusing_databases
from server.cli.failures import Failed
from server.cli.options import StorageOptions
from server.cli.output import Json, document, note, out

if TYPE_CHECKING:
    from server.settings import Settings
    from server.store import Store

UNITS_D = {"h": 1 / 24, "d": 1.0, "w": 7.0}


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that is not there yet.")],
    storage: StorageOptions,
    json: Json = False,
) -> None:
    """Write the database into one file, while the service runs.

    In it is every row as it stood at one moment: campaigns, trials with all their figures, events,
    calibrations. Not in it are the trials' logs and files, which lie in the data folder's
    `trials/`: copy that folder beside it where you want them.

    It is an SQLite file whatever the database is, and is restored into either kind.
    """
    from server.store.backup import back_up

    settings = storage.settings()
    with existing(settings) as store:
        rows = back_up(store, file)
    size_bytes = file.stat().st_size
    if json:
        return document({"file": str(file), "size_bytes": size_bytes} | dict(rows.rows))
    note(f"{file} ({tables.storage.size(size_bytes)}) holds {tables.storage.copied(rows)}")
    return note(f"not in it: logs and files of trials, in {settings.trials_dir}")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="As `autotune backup` wrote it.")],
    storage: StorageOptions,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Lose the campaigns and calibrations that are there now."),
    ] = False,
    json: Json = False,
) -> None:
    """Put a backup in the place of a database, whole or not at all; its service must not run.

    A backup of an earlier version is brought up to date. Campaigns that were worked on when it was
    made go on with the next `autotune serve`: trials whose folders are there are found again, the
    others run once more. To let none go on, pause or cancel them before the backup.
    """
    from server.store import Store
    from server.store.backup import restore as put_in_place
    from server.store.ownership import ownership

    settings = storage.settings()
    with refusing_databases(), closing(Store(settings.url)) as store:
        with ownership(store, "serve"), ownership(store, "runner"):
            rows = put_in_place(store, file, replace=replace)
        shown = store.shown
    if json:
        return document({"database": shown} | dict(rows.rows))
    note(f"{shown} holds {tables.storage.copied(rows)}")
    return note(f"their trials' logs and files belong into {settings.trials_dir}")


def prune(
    storage: StorageOptions,
    older_than: Annotated[
        str,
        typer.Option("--older-than", help="How long ago they ended: days (90d), weeks, or hours."),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go, and change nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Delete campaigns that ended long ago, with their trials' logs and files.

    Ended are those that are done, cancelled or failed; later campaigns no longer start from what
    they measured, calibrations stay. Folders of trials as old that no campaign knows go as well,
    and so does the audit of changes as old. The service may run meanwhile.
    """
    from server.pruning import prunable
    from server.pruning import prune as delete

    settings = storage.settings()
    before = datetime.now(UTC) - length_of_time(older_than)
    with existing(settings) as store:
        found = prunable(store, settings, before=before)
        gone = found if dry_run else delete(store, settings, found)
    if json:
        return document({"dry_run": dry_run} | tables.storage.pruned_document(gone))
    if gone.campaigns:
        out().print(tables.storage.pruned(gone))
    return note(tables.storage.pruned_sentence(gone, dry_run=dry_run))


def length_of_time(text: str, *, field: str = "older_than") -> timedelta:
    """Return what `90d`, `12w` or `36h` says; raises InvalidInput."""
    found = re.fullmatch(r"(\d{1,6})\s*([hdw])", text.strip())
    if not found:
        valid = "days, weeks or hours, such as 90d, 12w or 36h"
        raise InvalidInput(field, text, "it is no length of time", valid=valid)
    days = int(found[1]) * UNITS_D[found[2]]
    if days > (datetime.now(UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days:
        raise InvalidInput(field, text, "nothing is that old", valid="at most some years")
    return timedelta(days=days)


@contextmanager
def existing(settings: Settings) -> Iterator[Store]:
    """Open the database; one that is not there is not made.

    Raises:
        Failed: there is none, or its tables are of another version.
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
