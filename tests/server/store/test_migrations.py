from __future__ import annotations

import hashlib
import hmac
import json
from concurrent.futures import ThreadPoolExecutor

from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import inspect
from sqlalchemy.orm import Session

from autotune.resolution import machine_shape, model_shape
from autotune.schemas import Campaign
from evaluators.trial import TrialProgress
from search_spaces.catalog import load_machine, load_model
from server.api.access import Access
from server.settings import Settings
from server.store import Store
from server.store.calibrations import list_calibrations, save_calibration
from server.store.campaigns import campaign_row, get_campaign, profile_of
from server.store.engine import WRITING
from server.store.events import events_since
from server.store.migration import MIGRATIONS, alembic_config
from server.store.store import known_revisions
from server.store.trials import all_trials, note_progress
from tests.server.asking import STRATEGY, body, created, with_trials
from tests.server.calibrations import document

WHEN = "2026-01-02 03:04:05+00:00"
FIRST_VERSION = (
    "INSERT INTO campaigns (id, name, state, reason, evaluator, objective, simulated, request,"
    " model, machine, created_at, lease_epoch) VALUES (1, 'old', 'paused', '', 'simulated',"
    f" 'tokens_per_s', true, '{json.dumps(body())}',"
    f" '{model_shape(load_model('gpt-22b')).model_dump_json()}',"
    f" '{machine_shape(load_machine('frontier')).model_dump_json()}', '{WHEN}', 0)",
    "INSERT INTO trials (id, campaign_id, number, token, purpose, strategy, state, simulated,"
    " created_at, measurements, peak_memory_gib, versions) VALUES (1, 1, 1, 'c1-t1-old', 'search',"
    f" '{STRATEGY.model_dump_json()}', 'pending', true, '{WHEN}', '[]', '[]', '{{}}')",
    "INSERT INTO events (campaign_id, kind, trial_number) VALUES (1, 'campaign', NULL)",
    "INSERT INTO events (campaign_id, kind, trial_number) VALUES (1, 'trial', 1)",
)


def test_migrations_lead_to_the_tables_as_declared(store: Store) -> None:
    with store.engine.connect().execution_options(**{WRITING: True}) as connection:
        command.check(alembic_config(connection))


def test_migrations_are_named_after_their_versions_in_their_order() -> None:
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


def test_a_database_of_the_first_version_keeps_its_rows(settings: Settings) -> None:
    store = Store(settings.url)
    with store.engine.connect().execution_options(**{WRITING: True}) as connection:
        with connection.begin():
            command.upgrade(alembic_config(connection), "0001")
        with connection.begin():
            for statement in FIRST_VERSION:
                connection.exec_driver_sql(statement)
    store.upgrade()
    assert store.is_current()
    with store.session() as session:
        campaign, (trial,) = get_campaign(session, 1), all_trials(session, 1)
        assert profile_of(session, 1) is None
        assert [event.kind for event in events_since(session, 0)] == ["campaign", "trial"]
    assert campaign.name == "old"
    assert campaign.started_from is None
    assert (campaign.owner, campaign.private) == (None, False)
    assert campaign.request.slurm is None
    assert campaign.pending == 1
    assert trial.token == "c1-t1-old"
    assert (trial.phase, trial.phase_reason, trial.job_id) == (None, "", None)
    assert (trial.gpu_joules_per_token, trial.energy_note) == (None, "")
    assert trial.expected is None
    assert (trial.stands_for_nodes, trial.num_layers) == (None, None)
    with store.transaction() as session:
        assert note_progress(session, trial, TrialProgress(phase="waiting", reason="Priority"))
    store.close()


def test_what_gpus_drew_is_kept_under_its_new_name(settings: Settings) -> None:
    store = Store(settings.url)
    with store.engine.connect().execution_options(**{WRITING: True}) as connection:
        with connection.begin():
            command.upgrade(alembic_config(connection), "0001")
        with connection.begin():
            for statement in FIRST_VERSION:
                connection.exec_driver_sql(statement)
        with connection.begin():
            command.upgrade(alembic_config(connection), "0006")
        with connection.begin():
            connection.exec_driver_sql("UPDATE trials SET joules_per_token = 0.25")
    store.upgrade()
    with store.session() as session:
        [trial] = all_trials(session, 1)
    assert trial.gpu_joules_per_token == 0.25
    store.close()


def test_tokens_of_an_earlier_version_go_on(settings: Settings) -> None:
    """It kept StoredKey and ServerKey of RFC 5802, of a token without salt or iterations."""
    store, token = Store(settings.url), f"ann.{'x' * 43}"
    client_key = hmac.digest(token.encode(), b"Client Key", "sha256")
    stored, server = hashlib.sha256(client_key), hmac.new(token.encode(), b"Server Key", "sha256")
    with store.engine.connect().execution_options(**{WRITING: True}) as connection:
        with connection.begin():
            command.upgrade(alembic_config(connection), "0012")
        with connection.begin():
            connection.exec_driver_sql(
                "INSERT INTO users (id, name, scope, stored_key, server_key, created_at) VALUES"
                f" (1, 'ann', 'admin', '{stored.hexdigest()}', '{server.hexdigest()}', '{WHEN}')"
            )
    store.upgrade()
    found = Access(store=store).known(token)
    assert found is not None
    assert (found.name, found.scope) == ("ann", "admin")
    with store.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM users").all()
    assert server.hexdigest() not in repr(rows)
    store.close()


def test_campaigns_of_an_earlier_version_tell_a_new_one(settings: Settings) -> None:
    """What is said of each on the upgrade is what is said of a campaign that is created, but for
    what its trainer has come to do by itself since, which follows the `+`."""
    store = Store(settings.url)
    store.upgrade()
    made = [created(store), created(store, evaluator="local"), created(store, machine="local")]
    with store.session() as session:
        before = [_stack(session, campaign) for campaign in made]
    with (
        store.engine.connect().execution_options(**{WRITING: True}) as connection,
        connection.begin(),
    ):
        command.downgrade(alembic_config(connection), "0003")
    store.upgrade()
    with store.session() as session:
        after = [_stack(session, campaign) for campaign in made]
    assert after == [(machine, program.partition("+")[0]) for machine, program in before]
    assert len(set(before)) == 3
    store.close()


def _stack(session: Session, campaign: Campaign) -> tuple[str, str]:
    row = campaign_row(session, campaign.id)
    return row.machine_digest, row.program


def test_a_database_without_calibrations_gets_room_for_them_and_keeps_its_campaigns(
    store: Store,
) -> None:
    """Back to the version before, forward again: campaigns and trials are as they were."""
    campaign = created(store)
    trials = with_trials(store, campaign, 2)
    with store.engine.connect().execution_options(**{WRITING: True}) as connection:
        with connection.begin():
            command.downgrade(alembic_config(connection), "0002")
        assert "calibrations" not in inspect(connection).get_table_names()
    assert not store.is_current()
    store.upgrade()
    assert store.is_current()
    with store.session() as session:
        assert get_campaign(session, campaign.id).trials == 2
        kept = [trial.model_copy(update={"expected": None}) for trial in trials]
        assert all_trials(session, campaign.id) == kept, "what was expected is new since"
        assert list_calibrations(session) == []
    with store.transaction() as session:
        save_calibration(session, "mine", document())
    with store.session() as session:
        assert [each.name for each in list_calibrations(session)] == ["mine"]


def test_a_column_that_is_taken_away_takes_no_rows_with_it(store: Store) -> None:
    """Trials hang on campaigns: a table of campaigns that is made anew must not take them along."""
    campaign = created(store)
    with_trials(store, campaign, 2)
    with store.engine.connect().execution_options(**{WRITING: True}) as connection:
        with connection.begin():
            command.downgrade(alembic_config(connection), "0001")
        columns = {column["name"] for column in inspect(connection).get_columns("campaigns")}
        assert "profile" not in columns
        assert connection.exec_driver_sql("SELECT count(*) FROM trials").scalar() == 2
    store.upgrade()
    with store.session() as session:
        assert get_campaign(session, campaign.id).trials == 2


def test_migrations_can_be_undone(store: Store) -> None:
    with store.engine.connect().execution_options(**{WRITING: True}) as connection:
        with connection.begin():
            command.downgrade(alembic_config(connection), "base")
        assert inspect(connection).get_table_names() == ["alembic_version"]
