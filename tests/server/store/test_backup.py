from __future__ import annotations

import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from search_spaces.errors import InvalidInput
from server.store import Store, UnknownSchema
from server.store.backup import back_up, restore
from server.store.calibrations import save_calibration
from server.store.campaigns import cancel_campaign, delete_campaign
from server.store.leases import claim
from server.store.tables import Base
from tests.server.asking import created, with_trials, write
from tests.server.calibrations import document

Rows = dict[str, list[dict[str, Any]]]


@contextmanager
def opened(file: Path) -> Iterator[Store]:
    with closing(Store(f"sqlite:///{file}")) as store:
        yield store


@pytest.fixture
def filled(store: Store) -> Store:
    """Campaigns 1 to 3, the first with trials and a runner; the third is deleted."""
    with_trials(store, created(store), 3)
    created(store)
    third = created(store)
    write(store, cancel_campaign, third.id)
    with store.transaction() as session:
        delete_campaign(session, third.id)
        save_calibration(session, "measured", document())
        claim(session, "somebody/1/2.0", seconds=30, limit=1)
    return store


def all_rows(store: Store) -> Rows:
    with store.session() as session:
        return {
            table.name: [
                dict(row)
                for row in session.execute(select(table).order_by(*table.primary_key)).mappings()
            ]
            for table in Base.metadata.sorted_tables
        }


def without_leases(rows: Rows) -> Rows:
    free = {"lease_owner": None, "lease_until": None}
    return rows | {"campaigns": [row | free for row in rows["campaigns"]]}


def test_all_rows_move_to_another_database_and_back(filled: Store, tmp_path: Path) -> None:
    before = all_rows(filled)
    backup = tmp_path / "backup.db"
    copied = back_up(filled, backup)
    assert [copied[name] for name in ("campaigns", "trials", "calibrations")] == [2, 3, 1]
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".backup")]

    with opened(tmp_path / "moved.db") as moved:
        restore(moved, backup)
        assert all_rows(moved) == without_leases(before)
        assert created(moved).id == 4, "the third had its number"
        back_up(moved, tmp_path / "again.db")
        with pytest.raises(InvalidInput, match="holds campaigns, which would be lost"):
            restore(filled, tmp_path / "again.db")
        assert all_rows(filled) == before
        restore(filled, tmp_path / "again.db", replace=True)
        assert all_rows(filled) == all_rows(moved)
    assert created(filled).id == 5


def test_a_restoration_that_fails_changes_nothing(filled: Store, tmp_path: Path) -> None:
    backup = tmp_path / "backup.db"
    back_up(filled, backup)
    with closing(sqlite3.connect(backup)) as connection:
        connection.execute("UPDATE trials SET campaign_id = 99 WHERE number = 3")
        connection.commit()
    before = all_rows(filled)
    with pytest.raises(IntegrityError):
        restore(filled, backup, replace=True)
    assert all_rows(filled) == before


def test_what_is_no_backup_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with opened(tmp_path / "autotune.db") as store:
        store.upgrade()
        backup = tmp_path / "backup.db"
        back_up(store, backup)
        with pytest.raises(InvalidInput, match="it is there already"):
            back_up(store, backup)
        for name, spoil, reason in (
            ("text.db", lambda file: file.write_text("none" * 2000), "no backup"),
            ("empty.db", lambda file: file.write_bytes(b""), "no backup"),
            ("later.db", later, "a later version of autotune wrote it"),
            ("older.db", older, "an earlier version of autotune wrote it"),
            ("damaged.db", damaged, "damaged|no backup"),
        ):
            file = Path(shutil.copy(backup, tmp_path / name))
            spoil(file)
            with pytest.raises(InvalidInput, match=reason):
                restore(store, file)
        later(tmp_path / "autotune.db")
        with pytest.raises(UnknownSchema, match="install that version"):
            restore(store, backup)
        with pytest.raises(UnknownSchema, match=r"autotune\.db: a later version .*schema 9999"):
            store.upgrade()


def later(file: Path) -> None:
    stamp(file, "9999")


def older(file: Path) -> None:
    stamp(file, "0001")


def stamp(file: Path, revision: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"UPDATE alembic_version SET version_num = '{revision}'")
        connection.commit()


def damaged(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4096:12288] = b"\xff" * 8192
    file.write_bytes(content)
