from __future__ import annotations

from fastapi.testclient import TestClient

from autotune.schemas.catalog import AdapterSummary
from server.api.adapters import usable_adapters
from server.settings import Settings
from tests.evaluators.adapter.samples import my_script

ADAPTERS = "/api/v1/adapters"


def test_adapters_are_listed_without_what_they_run(
    client: TestClient, sqlite_settings: Settings
) -> None:
    folder = sqlite_settings.adapters_dir
    folder.mkdir(parents=True)
    my_script(folder)
    (folder / "broken.toml").write_text('command = ["secret-program"]\nread_it = 1\n')
    answer = client.get(ADAPTERS)
    found = {each["name"]: AdapterSummary.model_validate(each) for each in answer.json()}
    assert "secret-program" not in answer.text
    assert "train.py" not in answer.text
    assert {"megatron-lm", "torchtitan-0.2", "my-script", "broken"} <= set(found)
    assert found["my-script"].own
    assert found["my-script"].dimensions[:3] == (
        "tensor_parallel",
        "pipeline_parallel",
        "micro_batch_size",
    )
    assert "flash_attention" not in found["my-script"].dimensions
    ready = found["torchtitan-0.2"]
    assert (ready.own, ready.evidence) == (False, "trained")
    assert ready.checked
    assert "read_it: unknown" in found["broken"].problem
    usable = [each.name for each in usable_adapters(folder)]
    assert usable[0] == "my-script"
    assert {name for name in found if name.startswith("template")} == {"template", "template-hydra"}
    assert set(found) - set(usable) == {"template", "template-hydra", "broken"}
