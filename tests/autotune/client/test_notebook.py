"""Campaigns, trials and recommendations in a notebook."""

from __future__ import annotations

import inspect
import sys
from shutil import which

import httpx2
import pytest

from autotune import Client
from autotune.client.campaign import CampaignHandle
from autotune.client.question import campaign_request, subject
from autotune.client.transport import read
from autotune.measurement.table import COLUMNS
from autotune.schemas.campaigns import Campaign
from autotune.schemas.requests import CampaignCreate
from tests.requirement import require
from tests.serving import Served

pytestmark = pytest.mark.xdist_group("client")  # one service for all


def test_trials_are_a_data_frame(finished: CampaignHandle) -> None:
    pytest.importorskip("pandas")
    table = finished.to_dataframe()
    trials = finished.trials()
    assert tuple(table.columns) == COLUMNS
    assert list(table["tensor_parallel"]) == [trial.strategy.tensor_parallel for trial in trials]
    ok = table[table["state"] == "ok"]
    rates = [trial.metrics.tokens_per_s for trial in trials if trial.metrics]
    assert list(ok["tokens_per_s"]) == rates
    assert len(ok.sort_values("tokens_per_s")) == len(rates)


def test_without_pandas_the_error_names_what_to_install(
    finished: CampaignHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        finished.to_dataframe()


def test_what_a_notebook_shows_is_escaped(finished: CampaignHandle) -> None:
    named = finished.campaign.model_copy(update={"name": "<script>alert(1)</script>"})
    shown = CampaignHandle(finished._transport, named)._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown
    html = finished.best()._repr_html_()
    assert "tokens/s" in html
    assert "simulated" in html
    assert "color:inherit" in html


def test_every_field_is_documented_and_defaults_are_the_commands(service: Served) -> None:
    documented = inspect.getdoc(Client.create) or ""
    assert [name for name in CampaignCreate.model_fields if f"{name}: " not in documented] == []
    with Client(service.url) as client:
        simulated = client.dry_run(model="gpt-22b", machine="frontier", nodes=2)
        assert simulated.machine.name == "frontier"
        bound = client.plan(model="gpt-22b", slurm={"profile": "frontier"})
        assert bound.machine.name == "frontier"
        assert bound.dimensions["sequence_parallel"] == [False]
    by_default = campaign_request({"model": "tiny"})
    assert (by_default.machine, by_default.evaluator) == ("local", "local")
    assert subject({"model": "tiny"})["evaluator"] == "local"
    assert subject({"model": "tiny", "ray": {"address": "head"}})["evaluator"] == "ray"
    assert campaign_request({"model": "tiny", "machine": "frontier"}).evaluator == "simulated"


def test_a_campaign_on_slurm_has_the_machine_of_its_profile(service: Served) -> None:
    require(which("sbatch"), "sbatch (Debian: slurm-client), without which no job can be asked for")
    with Client(service.url) as client:
        planned = client.dry_run(model="gpt-22b", nodes=2, slurm={"profile": "frontier"})
    assert planned.machine.name == "frontier"


def test_fields_of_a_newer_service_are_passed_over(finished: CampaignHandle) -> None:
    known = finished.campaign.model_dump(mode="json")
    newer = {**known, "of_a_newer_version": 1}
    newer["model"] = {**known["model"], "of_a_newer_version": 1}
    assert read(httpx2.Response(200, json=newer), Campaign) == Campaign.model_validate(known)
