"""The client's interface: what it brings, what can be asked of it, and what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autotune import Client
from autotune.client.campaign import CampaignHandle
from autotune.client.question import CampaignInput
from autotune.errors import ApiError
from autotune.schemas.requests import CampaignCreate
from autotune.schemas.shapes import ModelShape
from search_spaces.errors import InvalidInput, InvalidInputs
from tests.autotune.client.conftest import CAMPAIGN, STRATEGY, campaign_input
from tests.serving import Served

pytestmark = pytest.mark.xdist_group("client")  # one service for all


def test_the_client_brings_nothing_of_the_server() -> None:
    heavy = "{'sqlalchemy', 'fastapi', 'deephyper', 'torch', 'vl_convert', 'server', 'uvicorn'}"
    program = f"from autotune import Client; import sys; print({heavy} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    import autotune

    with pytest.raises(AttributeError, match="Cilent"):
        autotune.__getattr__("Cilent")


def test_the_question_has_the_fields_of_the_wire_model() -> None:
    assert set(CampaignInput.__annotations__) <= set(CampaignCreate.model_fields)
    known = CampaignInput.__required_keys__ | CampaignInput.__optional_keys__
    assert known == set(CampaignCreate.model_fields)


def test_catalog_space_prediction_and_dry_run(client: Client) -> None:
    assert "gpt-175b" in client.models()
    assert client.model("13B").num_layers == 40
    assert client.machine("frontier").gpus_per_node == 8
    assert "frontier" in client.machines()
    assert "table-v" in client.spaces()
    assert "frontier" in {profile.name for profile in client.profiles()}
    assert "torchtitan-0.2" in {adapter.name for adapter in client.adapters()}
    assert client.profile("frontier").machine == "frontier"
    report = client.space(
        model="gpt-175b", machine="frontier", nodes=16, space={"preset": "table-v"}
    )
    assert report.raw == 3264
    prediction = client.predict(model="gpt-22b", machine="frontier", strategy=STRATEGY)
    assert prediction.legal
    assert prediction.fits
    assert client.dry_run(**CAMPAIGN).space.legal > 0
    assert client.dry_run(**CAMPAIGN).trials_affordable > 0
    plan = client.plan(**CAMPAIGN)
    assert plan.cost is not None
    assert plan.cost.trials == client.dry_run(**CAMPAIGN).trials_affordable
    narrow = client.predict(
        model="gpt-22b", machine="frontier", strategy=STRATEGY, min_headroom_gib=60
    )
    assert not narrow.fits


def test_files_are_read_here_and_not_by_the_service(client: Client, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "architectures": ["LlamaForCausalLM"],
                "hidden_size": 2048,
                "num_hidden_layers": 16,
                "num_attention_heads": 16,
                "num_key_value_heads": 8,
                "intermediate_size": 5632,
                "vocab_size": 32000,
                "max_position_embeddings": 2048,
                "tie_word_embeddings": False,
            }
        )
    )
    report = client.space(model=config, machine="perlmutter")
    assert report.model.num_query_groups == 8
    with pytest.raises((InvalidInput, InvalidInputs), match="cannot be read"):
        client.space(model="tiny", machine=tmp_path / "absent.toml")


def test_bad_input_is_told_before_anything_is_sent() -> None:
    with Client("http://127.0.0.1:9") as nobody, pytest.raises(InvalidInputs) as refused:
        nobody.create(**campaign_input(nodes=0, budget={"max_trials": 0}))
    assert [p.field for p in refused.value.problems] == ["nodes", "budget.max_trials"]


def test_a_field_that_does_not_exist_or_lacks_is_named_before_anything_is_sent() -> None:
    with Client("http://127.0.0.1:9") as nobody:
        with pytest.raises(InvalidInputs, match=r"node=2: there is no such field \(valid: nodes"):
            nobody.create(model="tiny", node=2)  # type: ignore[call-arg]
        for ask in (nobody.create, nobody.dry_run, nobody.plan, nobody.space, nobody.sweep):
            with pytest.raises(InvalidInputs, match="model=None: it is required"):
                ask(machine="frontier")  # type: ignore[call-arg]


def test_the_service_names_each_refused_field(client: Client) -> None:
    with pytest.raises(ApiError) as refused:
        client.create(**campaign_input(model="gpt-22c"))
    assert refused.value.status == 422
    assert refused.value.problem["errors"][0]["field"] == "model"
    assert "gpt-22b" in str(refused.value)


def test_the_documentation_runs(
    service: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_URL", service.url)
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[3] / "docs" / "client.md").read_text()
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, "docs/client.md", "exec"), {})
    assert (tmp_path / "run" / "launch.sbatch").exists()


def test_a_handle_shows_itself(finished: CampaignHandle) -> None:
    assert repr(finished) == f"<campaign {finished.id} {finished.campaign.name!r} done>"


def test_a_custom_shape_is_taken(client: Client) -> None:
    shape = ModelShape(num_layers=4, hidden_size=256, num_attention_heads=4)
    assert client.space(model=shape, machine="perlmutter").model.num_layers == 4
