from __future__ import annotations

import subprocess
import sys

import pytest
from sqlalchemy import func, select, text

from server.settings import Settings
from server.store import InUse, Store
from server.store.ownership import ownership
from tests.patience import until

pytestmark = pytest.mark.each_database

HOLDERS = text("SELECT pid FROM pg_locks WHERE locktype = 'advisory'")
HOLDER = """
import sys
from server.store import Store
from server.store.ownership import ownership
with ownership(Store(sys.argv[1]), "serve"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_service_on_one_database_is_refused(store: Store) -> None:
    url = store.engine.url.render_as_string(hide_password=False)
    other = Store(url)
    with (
        ownership(store, "serve"),
        pytest.raises(InUse, match="autotune serve already works on the database") as caught,
        ownership(other, "serve", patience_s=0.2),
    ):
        pass
    assert "\n" not in str(caught.value)
    with ownership(other, "serve"):
        pass
    other.close()


def test_a_second_runner_is_accepted_only_on_postgresql(store: Store) -> None:
    with ownership(store, "runner"):
        if store.dialect == "postgresql":
            with ownership(store, "runner"):
                return
        with pytest.raises(InUse, match="a runner already"), ownership(store, "runner"):
            pass


def test_a_service_and_a_runner_share_a_database(store: Store) -> None:
    with ownership(store, "serve"), ownership(store, "runner"):
        pass


def test_a_killed_service_lets_go(store: Store, settings: Settings) -> None:
    command = [sys.executable, "-c", HOLDER, settings.url]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(InUse), ownership(store, "serve", patience_s=0.2):
            pass
        holder.kill()
        holder.wait()
    with ownership(store, "serve"):
        pass


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_service_is_alone_again_after_a_database_restart(
    store: Store, settings: Settings
) -> None:
    """A restart cuts all connections, and the server forgets the locks that they had."""
    other = Store(settings.url)
    with ownership(store, "serve"):
        with other.engine.connect() as mine:
            before = mine.scalar(HOLDERS)
            mine.execute(select(func.pg_terminate_backend(before)))
            until(lambda: mine.scalar(HOLDERS) not in {before, None}, "the lock is taken again")
        with pytest.raises(InUse), ownership(other, "serve", patience_s=0.2):
            pass
    with ownership(other, "serve"):
        pass
    other.close()
