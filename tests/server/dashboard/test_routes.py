"""What pages and their data answer with, asked without a browser."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from autotune.measurement.metrics import AccumulationMeasurement
from autotune.schemas.calibrations import EarlierObservation
from autotune.schemas.choices import CampaignState, TrialState
from server.figures.trajectory import Trajectory, trajectory
from server.store.campaigns import campaign_row, change_state
from server.store.history import keep_start
from server.store.trials import all_trials, insert_trials
from tests.patience import PATIENCE_S
from tests.server.asking import EXPECTED, STRATEGY, new_trial, with_trials
from tests.server.dashboard.conftest import Service


def get(service: Service, path: str) -> tuple[int, dict[str, str], str]:
    try:
        # Whatever proxy the environment names is not asked for a service of this machine.
        with build_opener(ProxyHandler({})).open(
            Request(
                service.url + path,
                headers={"Authorization": f"Bearer {service.authenticator.token}"},
            ),
            timeout=PATIENCE_S,
        ) as answer:
            return answer.status, dict(answer.headers), answer.read().decode(errors="replace")
    except HTTPError as refusal:
        with refusal:
            return refusal.code, dict(refusal.headers), refusal.read().decode()


def get_json(service: Service, path: str) -> Any:
    status, _, body = get(service, path)
    assert status == HTTPStatus.OK, body
    return json.loads(body)


@pytest.mark.parametrize("path", ["/", "/campaigns/new", "/campaigns/999"])
def test_pages_allow_this_services_files_alone(service: Service, path: str) -> None:
    _, headers, body = get(service, path)
    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert headers["content-type"].startswith("text/html")
    assert "<style" not in body
    assert 'style="' not in body
    assert "http://" not in body
    assert "https://" not in body


@pytest.mark.parametrize("number", ["999", "nothing", "0", "9" * 30, "%00"])
def test_a_campaign_that_is_not_there_is_a_page_that_says_so(service: Service, number: str) -> None:
    status, _, body = get(service, f"/campaigns/{number}")
    assert status == HTTPStatus.NOT_FOUND
    assert "There is no campaign" in body


def test_a_page_says_what_its_campaign_started_from(service: Service) -> None:
    first, later = service.campaigns.create(), service.campaigns.create()
    address = f"/campaigns/{later.id}"
    assert "Started from" not in get(service, address)[2]
    shown = EarlierObservation(
        model=first.model,
        strategy=STRATEGY,
        fitted=True,
        campaign_id=first.id,
        versions={},
        age_days=0.0,
    )
    with service.campaigns.store.transaction() as session:
        row = campaign_row(session, later.id)
        keep_start(session, row, [shown] * 3)
        change_state(session, row, CampaignState.RUNNING)
    sentence = f"Started from 3 trials of campaign {first.id}."
    assert sentence in get(service, address)[2]
    assert sentence in get(service, f"{address}/fragments/progress")[2]


def test_a_page_says_when_deephypers_surrogate_took_over(service: Service) -> None:
    campaign = service.campaigns.create(search="deephyper")
    with_trials(service.campaigns.store, campaign, 1)
    page = get(service, f"/campaigns/{campaign.id}")[2]
    assert "DeepHyper's surrogate has not chosen a trial yet: all are initial points." in page
    expected = EXPECTED.model_copy(update={"chosen_by": "surrogate"})
    with service.campaigns.store.transaction() as session:
        insert_trials(session, campaign_row(session, campaign.id), [new_trial(expected=expected)])
    page = get(service, f"/campaigns/{campaign.id}/fragments/progress")[2]
    assert "DeepHyper's surrogate chose from trial 2 on, after its initial points." in page


def test_the_trajectory_is_a_series_and_a_chart_with_its_rows(
    service: Service,
) -> None:
    campaign = service.campaigns.running(ok=3, too_big=2)
    address = f"/api/v1/campaigns/{campaign.id}/figures/trajectory"
    twin = get_json(service, f"{address}.json?by=time")["series"]
    with service.campaigns.store.session() as session:
        trials = all_trials(session, campaign.id)
    assert Trajectory.model_validate(twin) == trajectory(campaign, trials, by="time")
    spec = get_json(service, f"{address}.vega.json?scheme=dark")
    assert spec["usermeta"]["series"]["finished"] == 5
    datasets = spec["datasets"]
    numbers = [row["number"] for row in datasets["measured"] + datasets["failed"]]
    assert sorted(numbers) == [1, 2, 3, 4, 5]


def test_trial_rows_are_filtered_sorted_and_limited(service: Service) -> None:
    campaign = service.campaigns.running(ok=6, too_big=2)
    path = f"/campaigns/{campaign.id}/fragments/trials"
    _, _, everything = get(service, f"{path}?state=&purpose=")
    assert everything.count("data-number=") == 8
    assert "data-more" not in everything
    _, _, failed = get(service, f"{path}?state=oom")
    assert failed.count("data-number=") == campaign.failures
    _, _, few = get(service, f"{path}?sort=-tokens_per_s&shown=3")
    assert few.count("data-number=") == 3
    assert f'data-number="{campaign.best_trial}"' in few.partition("</tr>")[0]
    assert "data-more" in few
    _, _, none = get(service, f"{path}?purpose=confirmation")
    assert "No trial matches this filter" in none
    assert get(service, f"{path}?sort=nonsense")[0] == HTTPStatus.UNPROCESSABLE_ENTITY


def test_another_model_by_count_shows_in_row_details_and_answer(
    service: Service,
) -> None:
    campaign = service.campaigns.running()
    [trial] = service.campaigns.start(
        campaign, service.campaigns.strategies(campaign, 1, fitting=True)
    )
    timed = AccumulationMeasurement(
        gradient_accumulation_steps=trial.strategy.gradient_accumulation_steps,
        iteration_times_s=(2.0,),
    )
    service.campaigns.end(
        campaign, trial, TrialState.OK, measurements=(timed,), trainer_parameters=1_234_567
    )
    address = f"/campaigns/{campaign.id}/fragments"
    caveat = "the trainer counts 1,234,567 parameters, and the requested model has 2"
    assert caveat in get(service, f"{address}/trials")[2]
    details = get(service, f"{address}/trials/{trial.number}")[2]
    assert details.count("1,234,567") == 2
    assert caveat in details
    assert caveat in get(service, f"{address}/outcome")[2]


@pytest.mark.parametrize(
    ("state", "offered"),
    [
        (CampaignState.QUEUED, {"pause", "extend", "cancel"}),
        (CampaignState.RUNNING, {"pause", "extend", "cancel"}),
        (CampaignState.PAUSED, {"resume", "extend", "cancel", "delete"}),
        (CampaignState.DONE, {"extend", "delete"}),
        (CampaignState.CANCELLED, {"delete"}),
        (CampaignState.FAILED, {"resume", "cancel", "delete"}),
    ],
)
def test_buttons_fit_the_state(service: Service, state: CampaignState, offered: set[str]) -> None:
    campaign = service.campaigns.create()
    service.campaigns.move(campaign, state)
    _, _, body = get(service, f"/campaigns/{campaign.id}/fragments/progress")
    shown = {part.partition('"')[0] for part in body.split('data-action="')[1:]}
    assert shown == offered


def test_names_are_text_and_never_markup(service: Service) -> None:
    campaign = service.campaigns.create(name="<script>alert(1)</script>")
    for path in ("/", f"/campaigns/{campaign.id}"):
        assert "<script>alert" not in get(service, path)[2]


def test_scripts_are_revalidated_and_the_bundle_is_immutable(service: Service) -> None:
    _, headers, _ = get(service, "/static/campaign.js")
    assert headers["cache-control"] == "no-cache"
    _, headers, _ = get(service, "/static/vega.js")
    assert "immutable" in headers["cache-control"]
    assert headers["content-encoding"] == "gzip"
