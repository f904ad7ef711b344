"""Which trainers a campaign may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.schemas.choices import EvaluatorName
from autotune.schemas.requests import CampaignCreate
from evaluators.adapter.catalog import adapter_file
from search_spaces.errors import InvalidInput, InvalidInputs
from server.api.admission import admit
from server.settings import Settings


def _problems(adapter: str, evaluator: EvaluatorName, folder: Path) -> list[InvalidInput]:
    settings = Settings(data_dir=folder, adapters_dir=folder)
    request = CampaignCreate(model="tiny", machine="local", evaluator=evaluator, adapter=adapter)
    try:
        admit(request, settings)
    except InvalidInputs as refusal:
        return [each for each in refusal.problems if each.field == "adapter"]
    return []


@pytest.mark.parametrize("adapter", ["torchtitan-2026-08", "torchtitan-0.2"])
def test_no_campaign_trains_another_model(adapter: str, tmp_path: Path) -> None:
    (problem,) = _problems(adapter, "local", tmp_path)
    assert problem.reason.startswith("its trials would not train tiny, but the model that ")
    assert "[trainer.set]" in problem.valid
    assert _problems(adapter, "simulated", tmp_path) == []


def test_a_copy_with_a_base_of_the_users_own_may_run(tmp_path: Path) -> None:
    text = adapter_file("torchtitan-0.2").read_text()
    (tmp_path / "mine.toml").write_text("[model]\nflavor = 'mine'\n")
    (tmp_path / "titan.toml").write_text(text.replace("# base =", "base ="))
    assert _problems("titan", "local", tmp_path) == []
