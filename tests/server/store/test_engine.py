from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import IntegrityError, OperationalError

from search_spaces.errors import InvalidInput
from server.store import DatabaseReplaced, Store
from server.store.engine import file_system_of, is_shared, journal_mode

MOUNTS = {"/": "ext4", "/lustre": "lustre", "/lustre/local": "xfs", "/home": "nfs4"}


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/var/lib", "ext4"),
        ("/home/user/.local/share/autotune", "nfs4"),
        ("/lustre/project/data", "lustre"),
        ("/lustre/local/data", "xfs"),
        ("/lustrenot", "ext4"),
    ],
)
def test_the_nearest_mount_point_decides(folder: str, expected: str) -> None:
    assert file_system_of(Path(folder), MOUNTS) == expected


def test_a_write_ahead_log_is_used_only_on_a_file_of_one_host() -> None:
    assert journal_mode(shared=False) == "WAL"
    assert journal_mode(shared=True) == "DELETE"


def test_sqlite_is_set_up(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'deep' / 'autotune.db'}")
    with store.engine.connect() as connection:
        journal = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
        assert journal == journal_mode(shared=is_shared(tmp_path)).lower()
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    store.close()


def test_an_empty_file_is_no_new_database(tmp_path: Path) -> None:
    """It was one, and a file that is made is whole at once."""
    file = tmp_path / "autotune.db"
    Store(f"sqlite:///{file}").close()
    assert file.stat().st_size > 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["autotune.db"]
    Store(f"sqlite:///{file}").close()
    file.write_bytes(b"")
    with pytest.raises(InvalidInput, match="the file is empty"):
        Store(f"sqlite:///{file}")
    assert not file.stat().st_size


@pytest.mark.each_database
def test_foreign_keys_are_enforced(store: Store) -> None:
    statement = "INSERT INTO events (campaign_id, kind) VALUES (99, 'campaign')"
    with pytest.raises(IntegrityError), store.engine.begin() as connection:
        connection.exec_driver_sql(statement)


@pytest.mark.parametrize(
    "url", ["", "nonsense", "mysql://host/name", "sqlite://", "sqlite:///:memory:", "foo://bar"]
)
def test_a_url_of_no_use_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Store(url)
    assert caught.value.field == "database_url"


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(InvalidInput) as caught:
        Store("mysql://user:secret@host/name")
    assert "secret" not in str(caught.value)


def test_a_file_that_another_took_the_place_of(tmp_path: Path) -> None:
    store, other = (Store(f"sqlite:///{tmp_path / name}") for name in ("one.db", "other.db"))
    for each in (store, other):
        each.upgrade()
    other.close()
    (tmp_path / "other.db").rename(tmp_path / "one.db")
    for _ in range(2):
        with pytest.raises(DatabaseReplaced, match="was replaced by another one"):
            store.is_current()
    store.close()


def test_a_database_of_postgresql_that_was_made_anew(postgres_url: str) -> None:
    def again(statement: str) -> None:
        with server.connect() as connection:
            connection.exec_driver_sql(statement)

    server = create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    again("CREATE DATABASE swapped")
    url = make_url(postgres_url).set(database="swapped")
    store = Store(url.render_as_string(hide_password=False))
    store.upgrade()
    again("DROP DATABASE swapped WITH (FORCE)")
    with pytest.raises(OperationalError):
        store.is_current()
    again("CREATE DATABASE swapped")
    for _ in range(2):
        with pytest.raises(DatabaseReplaced, match="was replaced by another one"):
            store.is_current()
    store.close()
    again("DROP DATABASE swapped WITH (FORCE)")
    server.dispose()
