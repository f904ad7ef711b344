"""The client's interface: what it brings, what can be asked of it, and what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autotune import Client
from autotune.client.question import CampaignInput
from autotune.errors import ApiError
from autotune.schemas.requests import CampaignCreate
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.transformer import Transformer
from tests.autotune.client.conftest import campaign_input
from tests.evaluators.run_log.logs import megatron, written
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


def test_a_model_is_a_shape_or_a_file_that_is_read_here(client: Client, tmp_path: Path) -> None:
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
    shape = Transformer(num_layers=4, hidden_size=256, num_attention_heads=4)
    assert client.plan(model=shape, machine="perlmutter").model.num_layers == 4
    report = client.plan(model=config, machine="perlmutter")
    assert report.model.num_query_groups == 8
    with pytest.raises((InvalidInput, InvalidInputs), match="cannot be read"):
        client.plan(model="tiny", machine=tmp_path / "absent.toml")


def test_bad_input_is_refused_before_anything_is_sent() -> None:
    with Client("http://127.0.0.1:9") as nobody:
        with pytest.raises(InvalidInputs) as refused:
            nobody.create(**campaign_input(nodes=0, budget={"max_trials": 0}))
        assert [p.field for p in refused.value.problems] == ["nodes", "budget.max_trials"]
        with pytest.raises(InvalidInputs, match=r"node=2: there is no such field \(valid: nodes"):
            nobody.create(model="tiny", node=2)  # type: ignore[call-arg]
        for ask in (nobody.create, nobody.dry_run, nobody.plan):
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
    text = (Path(__file__).parents[3] / "docs" / "rest.md").read_text()
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, "docs/rest.md", "exec"), {})
    assert (tmp_path / "run" / "train.sbatch").exists()


def test_a_log_is_diagnosed(client: Client, tmp_path: Path) -> None:
    log = written(tmp_path, megatron([45.0] * 20, changed={"bf16": False}))
    found = client.diagnose(log)
    assert (found.source, found.verdict, found.causes[0].name) == ("run.log", "slow", "fp32")
    with pytest.raises(ApiError, match="machine"):
        client.diagnose(log, machine="dgx-h99")
