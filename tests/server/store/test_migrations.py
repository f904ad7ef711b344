from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from server.settings import Settings
from server.store import Store, UnknownSchema
from server.store.engine import WRITING
from server.store.store import MIGRATIONS, alembic_config, known_revisions
from tests.server.asking import created, with_trials

pytestmark = pytest.mark.each_database


def test_migrations_lead_to_the_tables_as_declared(store: Store) -> None:
    with store.engine.connect().execution_options(**{WRITING: True}) as connection:
        command.check(alembic_config(connection))


def test_migrations_are_named_after_their_versions_in_order() -> None:
    chain = [script.revision for script in ScriptDirectory(str(MIGRATIONS)).walk_revisions()]
    assert list(known_revisions()) == chain[::-1]


def test_an_upgraded_store_is_current_and_an_empty_one_is_not(settings: Settings) -> None:
    store = Store(settings.url)
    assert not store.is_current()
    store.upgrade()
    assert store.is_current()
    store.close()


def test_an_upgrade_of_a_current_store_keeps_its_rows(store: Store) -> None:
    campaign = created(store)
    with_trials(store, campaign, 2)
    store.upgrade()
    with store.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM trials").scalar() == 2


def test_several_processes_may_upgrade_at_once(settings: Settings) -> None:
    stores = [Store(settings.url) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(Store.upgrade, stores))
    assert all(store.is_current() for store in stores)
    for store in stores:
        store.close()


@pytest.mark.parametrize(
    ("revision", "sentence"),
    [
        (
            "0017",
            r"an earlier version .*\(schema 0017; .*\); finish its campaigns with the version that",
        ),
        ("9999", r"a later version .*\(schema 9999; .*\); install that version"),
    ],
)
def test_a_schema_without_a_migration_to_ours_is_refused(
    store: Store, revision: str, sentence: str
) -> None:
    ours = known_revisions()[-1]
    _stamp(store, revision)
    try:
        with pytest.raises(UnknownSchema, match=sentence):
            store.upgrade()
        assert store.revision() == revision
    finally:
        _stamp(store, ours)  # tests share the tables of PostgreSQL


def _stamp(store: Store, revision: str) -> None:
    connecting = store.engine.connect().execution_options(**{WRITING: True})
    with connecting as connection, connection.begin():
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{revision}'")


def test_migrations_can_be_undone(store: Store) -> None:
    with store.engine.connect().execution_options(**{WRITING: True}) as connection:
        with connection.begin():
            command.downgrade(alembic_config(connection), "base")
        assert inspect(connection).get_table_names() == ["alembic_version"]
