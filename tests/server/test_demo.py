"""The demonstration, with fewer trials: two campaigns train for real, one is simulated."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from autotune.client.campaign import CampaignHandle
from autotune.client.location import locate
from autotune.client.patience import Patience
from autotune.client.question import CampaignInput
from autotune.client.transport import Transport
from autotune.prediction.campaign import check_campaign
from autotune.schemas.choices import CampaignState
from autotune.schemas.requests import CampaignCreate
from search_spaces.catalog import load_machine
from server import demo
from server.cli.failures import Failed
from server.cli.port import usable_port
from tests.autotune.recommendation.examples import campaign
from tests.requirement import require
from tests.server.cli.conftest import Autotune


def has_torch() -> bool:
    return find_spec("torch") is not None and find_spec("deepspeed") is not None


def fewer(question: CampaignInput, trials: int) -> CampaignInput:
    little: CampaignInput = {
        **question,
        "budget": {"max_trials": trials},
        "protocol": {"confirmations": 0, "measured_iterations": 1, "most_iterations": 1},
        "time_scale": 0.0,
    }
    return little


@pytest.mark.soak
def test_once_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require(has_torch(), "torch and DeepSpeed")
    monkeypatch.setattr(demo, "TINY", fewer(demo.TINY, 1))
    monkeypatch.setattr(demo, "LONGER", fewer(demo.LONGER, 1))
    # The first layouts that the search tries are its boldest: give this one its memory.
    monkeypatch.setattr(demo, "CPU_MEMORY_GIB", 0.2)
    monkeypatch.setattr(demo, "SIMULATED", fewer(demo.SIMULATED, 6))
    before = _children()
    port = usable_port(demo.HOST, 0)
    monkeypatch.setenv("AUTOTUNE_PORT", str(port))
    monkeypatch.setenv("AUTOTUNE_DATA_DIR", str(tmp_path))
    ran = Autotune()("demo", "--once", "--json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["dashboard_url"] == f"http://{demo.HOST}:{port}"
    real, simulated, longer = document["campaigns"]
    assert (real["model"], real["machine"], real["evaluator"]) == ("tiny", "local", "local")
    assert (real["simulated"], simulated["simulated"]) == (False, True)
    assert real["trials"] == 1
    assert real["best"]["metrics"]["tokens_per_s"] > 0
    assert real["best"]["metrics"]["loss"] > 0
    assert simulated["speedup_over_baseline"] > 1.3
    (start,) = longer["started_from"]
    assert (start["campaign_id"], start["trials"]) == (1, 1)
    assert longer["start_worth"]["trials"] == 1
    assert document["dashboard_url"] in ran.err
    # Which trials a progress line is told of depends on how busy the machine is.
    assert re.search(r"llama-3-70b on dgx-h100: \d/6 · \d failed · best", ran.err)
    assert "started from" in ran.err
    assert "(measured)" in ran.err
    assert "(simulated)" in ran.err
    assert (tmp_path / "recommendations" / "campaign-1" / "benchmark.sh").exists()
    assert _children() <= before


def test_a_campaign_without_a_result_is_a_failure(tmp_path: Path) -> None:
    location = locate("http://127.0.0.1:9", token_file=None)
    with closing(Transport(location, Patience())) as transport:
        failed = campaign(id=7, state=CampaignState.FAILED, reason="no trial succeeded")
        handle = CampaignHandle(transport, failed)
        result = demo.Result(handle=handle, answer=None, script=tmp_path)
        assert result.as_dict()["best"] is None
        with pytest.raises(Failed, match="campaign 7 failed: no trial succeeded"):
            demo.judge([result])


def _children() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


def test_only_a_machine_without_gpus_is_given_less_memory() -> None:
    with_gpus = load_machine("dgx-h100")
    assert demo.limited(with_gpus) == with_gpus
    without = replace(with_gpus, peak_tflops=None)
    assert demo.limited(without).memory_gib == demo.CPU_MEMORY_GIB


def test_its_campaigns_are_accepted() -> None:
    local = replace(load_machine("local"), peak_tflops=None)
    here = {"machine": demo.limited(local)}
    for question in ({**demo.TINY, **here}, {**demo.LONGER, **here}, demo.SIMULATED):
        assert check_campaign(CampaignCreate.model_validate(question)).lattice()
