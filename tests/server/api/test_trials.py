from __future__ import annotations

import csv
import io

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import select

from autotune.measurement.table import COLUMNS
from autotune.schemas.campaigns import Campaign
from autotune.schemas.trials import Trial, TrialPage
from server.api.trials import UNITS, tail
from server.settings import Settings
from server.store import NotFound, Store
from server.store.tables import TrialRow
from server.store.trials import all_trials, get_trial
from tests.server.asking import created, with_trials
from tests.server.entitled import entitled

Finished = tuple[FastAPI, Campaign]


@pytest.fixture
def at(finished: Finished) -> str:
    return f"/api/v1/campaigns/{finished[1].id}/trials"


@pytest.fixture
def client(finished: Finished) -> TestClient:
    return entitled(finished[0])


def every(finished: Finished) -> list[Trial]:
    store: Store = finished[0].state.store
    with store.session() as session:
        return all_trials(session, finished[1].id)


def test_trials_are_listed_sorted_filtered_and_read_one_by_one(
    client: TestClient, at: str, finished: Finished
) -> None:
    page = TrialPage.model_validate(client.get(at).json())
    assert page.items == every(finished)
    assert page.next is None
    one = Trial.model_validate(client.get(f"{at}/2").json())
    assert one == page.items[1]
    params = {"state": "ok", "purpose": "search", "sort": "-tokens_per_s"}
    trials = TrialPage.model_validate(client.get(at, params=params).json()).items
    rates = [trial.metrics.tokens_per_s for trial in trials if trial.metrics]
    assert len(rates) == len(trials) > 1
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"sort": "speed"}, "sort"),
        ({"cursor": "nonsense"}, "cursor"),
        ({"state": "oomm"}, "state"),
        ({"limit": 0}, "limit"),
        ({"purpose": "fun"}, "purpose"),
    ],
)
def test_a_wrong_question_is_refused(
    client: TestClient, at: str, params: dict[str, str | int], field: str
) -> None:
    answer = client.get(at, params=params)
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["field"] == field
    assert error["value"] in (params[field], str(params[field]))
    assert error["valid"]


def test_what_is_not_there_is_a_404(client: TestClient, at: str) -> None:
    for path in (
        f"{at}/99",
        "/api/v1/campaigns/99/trials",
        "/api/v1/campaigns/99/trials.csv",
    ):
        answer = client.get(path)
        assert answer.status_code == 404
        assert answer.headers["Content-Type"] == "application/problem+json"


def test_the_table_has_a_row_per_trial_and_units_in_its_head(
    client: TestClient, at: str, finished: Finished
) -> None:
    answer = client.get(f"{at}.csv")
    assert answer.headers["Content-Type"].startswith("text/csv")
    head, *rows = csv.reader(io.StringIO(answer.text))
    trials = every(finished)
    assert len(rows) == len(trials)
    assert all(len(row) == len(head) == len(COLUMNS) for row in rows)
    assert "iteration_time_s [s]" in head
    assert "tokens_per_s [tokens/s]" in head
    assert set(UNITS) <= set(COLUMNS)
    for row, trial in zip(rows, trials, strict=True):
        cells = dict(zip(COLUMNS, row, strict=True))
        assert cells["number"] == str(trial.number)
        assert cells["tensor_parallel"] == str(trial.strategy.tensor_parallel)
        assert trial.expected is not None
        assert float(cells["expected_node_hours"]) == trial.expected.node_hours
        if trial.metrics:
            assert float(cells["iteration_time_s"]) == trial.metrics.iteration_time_s
        else:
            assert cells["iteration_time_s"] == ""


def test_no_cell_is_a_formula_and_a_trial_may_have_no_log(
    finished: Finished, client: TestClient
) -> None:
    store: Store = finished[0].state.store
    trial = with_trials(store, created(store), 1)[0]
    with store.engine.begin() as connection:
        update = "UPDATE trials SET error = '=HYPERLINK(1)' WHERE token = ?"
        connection.exec_driver_sql(update, (trial.token,))
    text = client.get(f"/api/v1/campaigns/{trial.campaign_id}/trials.csv").text
    assert "'=HYPERLINK(1)" in text
    answer = client.get(f"/api/v1/campaigns/{trial.campaign_id}/trials/1/log")
    assert answer.status_code == 404
    assert "has no log" in answer.json()["detail"]


def test_each_knob_of_a_campaign_has_a_column(finished: Finished, client: TestClient) -> None:
    store: Store = finished[0].state.store
    trials = with_trials(store, created(store), 3)
    own = {"overlap": False, "bucket": 5}, {"bucket": 7}
    with store.session() as session, session.begin():
        for trial, settings in zip(trials[1:], own, strict=True):
            row = session.scalars(select(TrialRow).where(TrialRow.token == trial.token)).one()
            row.strategy = {**row.strategy, "settings": settings}
    text = client.get(f"/api/v1/campaigns/{trials[0].campaign_id}/trials.csv").text
    rows = [(row["overlap"], row["bucket"]) for row in csv.DictReader(io.StringIO(text))]
    assert rows == [("", ""), ("False", "5"), ("", "7")]


def test_the_log_ends_with_the_requested_lines(client: TestClient, at: str) -> None:
    whole = client.get(f"{at}/1/log").text
    assert "SIMULATED" in whole
    last = client.get(f"{at}/1/log", params={"lines": 2}).text
    assert last.count("\n") == 2
    assert whole.endswith(last)


def test_no_file_outside_of_the_trials_own_directory_is_shown(
    sqlite_settings: Settings, store: Store
) -> None:
    trial = with_trials(store, created(store), 1)[0]
    directory = sqlite_settings.trial_dir(trial.token)
    directory.mkdir(parents=True)
    secret = sqlite_settings.data_dir / "secret"
    secret.write_text("secret")
    (directory / "link").symlink_to(secret)
    for path in (
        str(secret),
        "../../secret",
        f"{directory}/../../secret",
        f"{directory}/link",
        f"/{trial.token}/../../secret",
    ):
        with pytest.raises(NotFound):
            tail(trial.model_copy(update={"log_path": path}), sqlite_settings, lines=5)
    (directory / "trial.log").write_bytes(b"fine \xff\n")
    with store.session() as session:
        trial = get_trial(session, trial.campaign_id, 1)
    assert tail(trial, sqlite_settings, lines=5) == "fine \ufffd\n"


def test_an_unfinished_trials_log_is_that_of_its_newest_attempt(
    sqlite_settings: Settings, store: Store
) -> None:
    trial = with_trials(store, created(store), 1)[0]
    directory = sqlite_settings.trial_dir(trial.token)
    for number in (2, 9, 10):
        (directory / f"attempt-{number}").mkdir(parents=True)
        (directory / f"attempt-{number}/trial.log").write_text(f"attempt {number}\n")
    (directory / "attempt-11").mkdir()
    (directory / "attempt-x").mkdir()
    (directory / "attempt-x/trial.log").write_text("no attempt")
    assert tail(trial, sqlite_settings, lines=5) == "attempt 10\n"
    elsewhere = f"/before/the/move/{trial.token}/attempt-2/trial.log"
    for path in (str(directory / "attempt-2/trial.log"), elsewhere):
        ended = trial.model_copy(update={"log_path": path})
        assert tail(ended, sqlite_settings, lines=5) == "attempt 2\n"
