"""Models, machines and profiles of clusters by command: listed, printed, and chosen."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import which

import pytest

from server.cli.failures import ExitCode
from tests.requirement import require
from tests.server.cli.conftest import Autotune
from tests.serving import Served

RECORDED = Path(__file__).parents[3] / "search_spaces" / "recorded" / "hugging-face-configs.json"

MINE = """
description = "Ours. Eight GPUs a node."
machine = "frontier"

[slurm]
account = "abc123"
"""
BROKEN = '[slurm]\npartitoin = "batch"\n'
SUBMIT = ("submit", "--model", "gpt-22b", "--nodes", "2", "--dry-run", "--json")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("AUTOTUNE_PROFILES_DIR", str(tmp_path))
    return tmp_path


def test_the_catalog(alone: Autotune) -> None:
    assert "gpt-175b" in alone("models").out
    assert {m["name"] for m in alone("models", "--json").json()} >= {"tiny", "gpt-1t"}
    assert "MI250X" in alone("machines").out
    assert {m["name"] for m in alone("machines", "--json").json()} >= {"local", "frontier"}


def test_what_training_a_model_takes(alone: Autotune) -> None:
    """The memory that the Frontier study printed for its model of nominally 175B."""
    found = alone("models", "175B", "--json").json()
    parts = ("parameters_gb", "gradients_gb", "optimizer_gb", "memory_gb")
    assert [found[part] for part in parts] == pytest.approx((1050, 700, 1400, 3150), rel=0.03)
    assert (found["tokens"], found["assumed"]) == (20 * found["parameters"], True)
    assert found["flops_6n"] == pytest.approx(120 * found["parameters"] ** 2)
    assert 1.0 < found["model_flops"] / found["flops_6n"] < 1.1
    needs = alone("models", "175B", "--tokens", "300B", "--json").json()
    assert (needs["tokens"], needs["assumed"]) == (300e9, False)
    text = alone("models", "175B").out
    assert f"{found['memory_gb']:,.0f}" in text
    assert "--tokens changes it" in text
    assert "--tokens" in alone("models", "--tokens", "300B").err


def test_a_mixture_of_experts_by_its_configuration(alone: Autotune, tmp_path: Path) -> None:
    """A configuration's file, with all that a token does not pass counted apart."""
    file = tmp_path / "qwen3-30b-a3b" / "config.json"
    file.parent.mkdir()
    file.write_text(json.dumps(json.loads(RECORDED.read_text())["qwen3-30b-a3b"]))
    found = alone("models", str(file), "--tokens", "1T", "--json").json()
    assert (found["parameters"], found["active_parameters"]) == (30_532_110_336, 3_353_020_416)
    assert found["flops_6n"] == 6e12 * found["active_parameters"]
    text = alone("models", str(file)).out
    assert "30.5B parameters, 3.35B active" in text
    assert "N active parameters" in text


def test_listing_tells_ready_ones_from_ones_own(alone: Autotune, folder: Path) -> None:
    """A broken one says what is wrong and hides no other."""
    (folder / "mine.toml").write_text(MINE)
    (folder / "broken.toml").write_text(BROKEN)
    ran = alone.done("profiles")
    rows = {line.split()[0]: line for line in ran.out.splitlines()}
    assert rows["mine"].split()[1:4] == ["frontier", "bundled", "you"]
    assert "Eight GPUs a node" in rows["mine"]
    assert rows["generic"].split()[1:4] == ["any", "bundled", "autotune"]
    assert str(folder) in ran.err
    assert "slurm.partitoin" in rows["broken"]
    assert "did you mean" in rows["broken"]
    summaries = {each["name"]: each for each in alone("profiles", "--json").json()}
    assert "slurm.partitoin" in summaries["broken"]["problem"]
    assert summaries["broken"]["source"] == str(folder / "broken.toml")
    assert summaries["frontier"]["problem"] == ""


def test_one_is_printed_as_a_file_to_start_from(alone: Autotune, folder: Path) -> None:
    ran = alone.done("profiles", "generic")
    (folder / "mysite.toml").write_text(ran.out)
    content = alone("profiles", "mysite", "--json").json()["content"]
    assert content == alone("profiles", "generic", "--json").json()["content"] | {"name": "mysite"}


def test_a_broken_one_is_printed_all_the_same(alone: Autotune, folder: Path) -> None:
    (folder / "broken.toml").write_text(BROKEN)
    assert alone("profiles", "broken").out == BROKEN
    refused = alone("profiles", "broken", "--json")
    assert refused.code == ExitCode.BAD_INPUT
    assert "slurm.partitoin" in refused.err
    assert "did you mean broken" in alone("profiles", "brokem").err


def test_a_campaign_takes_the_machine_of_its_profile(autotune: Autotune) -> None:
    require(which("sbatch"), "sbatch (Debian: slurm-client), without which no job can be asked for")
    ran = autotune.done(*SUBMIT, "--profile", "frontier", "--evaluator", "pilot")
    assert ran.json()["machine"]["name"] == "frontier"
    other = autotune(*SUBMIT, "--profile", "generic", "--machine", "dgx-a100")
    assert other.json()["machine"]["name"] == "dgx-a100"


def test_a_campaign_with_a_broken_profile(autotune: Autotune, service: Served) -> None:
    folder = service.data_dir / "profiles"
    folder.mkdir(exist_ok=True)
    (folder / "broken.toml").write_text(BROKEN)
    ran = autotune(*SUBMIT, "--profile", "broken")
    assert ran.code == ExitCode.BAD_INPUT
    [sentence] = ran.err.strip().splitlines()
    assert "slurm.partitoin" in sentence
