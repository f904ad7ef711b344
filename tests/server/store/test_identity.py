from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import OperationalError

from server.store import DatabaseReplaced, Store


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
