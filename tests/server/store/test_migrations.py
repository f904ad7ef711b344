from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from alembic import command
from sqlalchemy import inspect

from server.settings import Settings
from server.store import Store
from server.store.engine import WRITING
from server.store.store import alembic_config
from tests.server.asking import created, with_trials


def test_migrations_lead_to_the_tables_as_declared(store: Store) -> None:
    with store.engine.connect().execution_options(**{WRITING: True}) as connection:
        command.check(alembic_config(connection))


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


def test_migrations_can_be_undone(store: Store) -> None:
    with store.engine.connect().execution_options(**{WRITING: True}) as connection:
        with connection.begin():
            command.downgrade(alembic_config(connection), "base")
        assert inspect(connection).get_table_names() == ["alembic_version"]
