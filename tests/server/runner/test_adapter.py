"""A campaign over a script that nobody has seen, on this machine."""

from __future__ import annotations

import os
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from autotune.client.question import adapter_choice
from autotune.schemas.choices import TrialState
from autotune.schemas.requests import AdapterFile
from evaluators.adapter.reading import read_adapter
from evaluators.cluster import profile_from_dict
from server.settings import Settings
from server.store.campaigns import profile_of
from tests.evaluators.adapter.samples import MACHINE, MODEL, my_script
from tests.evaluators.program.test_task import NVIDIA, tool
from tests.server.asking import body, read
from tests.server.running import Running

pytestmark = pytest.mark.usefixtures("own")

CAMPAIGN = body(
    model=asdict(MODEL),
    machine=asdict(MACHINE) | {"name": "local"} | {"sources": []},
    nodes=1,
    pool_nodes=1,
    evaluator="local",
    adapter="my-script",
    space={"micro_batch_size": [1, 4], "gradient_accumulation_steps": 4, "zero_stage": 1},
    budget={"max_trials": 2},
    protocol={"confirmations": 0},
)


def test_a_campaign_ends_with_a_measured_recommendation(
    client: TestClient, running: Running, own: Settings, tmp_path: Path
) -> None:
    answer = client.post("/api/v1/campaigns", json=CAMPAIGN)
    assert answer.status_code == 201, answer.text
    number = answer.json()["id"]
    profile = read(running.store, profile_of, number)
    assert profile is not None
    assert profile["adapter"]["name"] == "my-script"
    # What the campaign began with holds, whatever becomes of the file.
    (own.adapters_dir / "my-script.toml").unlink()
    address = f"/api/v1/campaigns/{number}"
    running.until(lambda: client.get(address).json()["state"] == "done")
    trials = client.get(f"/api/v1/campaigns/{number}/trials").json()["items"]
    assert {trial["state"] for trial in trials} == {TrialState.OK}, trials
    assert {trial["versions"]["adapter"].split()[0] for trial in trials} == {"my-script"}
    assert {trial["strategy"]["flash_attention"] for trial in trials} == {True}
    assert {trial["strategy"]["virtual_stages"] for trial in trials} == {1}
    best = client.get(f"/api/v1/campaigns/{number}/recommendation").json()
    assert best["simulated"] is False
    assert best["launch"]["file"] == "benchmark.sh"
    assert best["launch"]["needs"] == []
    assert "ds_config.json" not in best["artefacts"]  # another trainer's
    script = client.get(f"{address}/artefacts/benchmark.sh").text
    again = subprocess.run(
        ["bash", "-c", script],
        env=os.environ | {"RUN_DIR": str(tmp_path / "a run")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "[20/20] loss=" in again.stdout
    assert "2 ranks:" in again.stdout


STREAMS = """
[knob.streams]
meaning = "streams of copies"
values = [1, 2]
numerics = "identical"
set = { "$STREAMS" = "{streams}" }
"""


def test_own_knobs_go_with_an_adapter(client: TestClient, running: Running, own: Settings) -> None:
    assert (own.adapters_dir / "my-script.toml").exists()
    tried = {"knobs": ["streams"], "knob_file": STREAMS, "budget": {"max_trials": 1}}
    answer = client.post("/api/v1/campaigns", json=CAMPAIGN | tried)
    assert answer.status_code == 201, answer.text
    address = f"/api/v1/campaigns/{answer.json()['id']}"
    running.until(lambda: client.get(address).json()["state"] == "done")
    trials = client.get(f"{address}/trials").json()["items"]
    assert {trial["state"] for trial in trials} == {TrialState.OK}, trials
    settings = [t["strategy"].get("settings", {}) for t in trials if t["purpose"] == "knob"]
    assert settings.count({}) >= 3
    assert {"streams": 2} in settings
    found = client.get(f"{address}/recommendation").json()["knobs"]["results"]
    assert [each["knob"] for each in found] == ["streams"]


@pytest.fixture
def sent(tmp_path: Path) -> AdapterFile:
    """A file that the service does not have, as the client sends it."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    my_script(
        folder, change=('command = ["{python}"', 'description = "sent"\ncommand = ["{python}"')
    )
    choice = adapter_choice(folder / "my-script.toml")
    assert isinstance(choice, AdapterFile)
    return choice


def test_an_adapters_file_is_sent_with_the_question(
    client: TestClient, running: Running, sent: AdapterFile
) -> None:
    expected = read_adapter(Path(sent.folder) / "my-script.toml")
    for name in ("my.json", "my-script.toml"):  # the service reads neither
        (Path(sent.folder) / name).unlink()
    request = CAMPAIGN | {"adapter": sent.model_dump()}
    answer = client.post("/api/v1/campaigns", json=request)
    assert answer.status_code == 201, answer.text
    number = answer.json()["id"]
    stored = read(running.store, profile_of, number)
    profile = profile_from_dict(stored or {}, source="campaign")
    assert profile.adapter == expected
    assert expected.folder == sent.folder
    assert "Trainer: my-script" in client.get(f"/campaigns/{number}").text
    form = client.get(f"/campaigns/new?like={number}")
    assert form.status_code == 200
    assert "train.py" not in form.text


UNUSABLE: list[tuple[dict[str, Any], str, str]] = [
    ({"files": {}}, "adapter", "its text was not sent with the adapter"),
    ({"text": "command = ["}, "adapter", "the file is not TOML"),
    ({"text": 'comand = ["x"]'}, "adapter", "did you mean command?"),
    ({"text": "#" * 65_537}, "adapter.text", "65536 characters"),
    ({"folder": "here"}, "adapter.folder", "^/"),
    ({"name": "../mine"}, "adapter.name", "should match"),
]
"""What is wrong with a file, the field that names it, and what the error says."""


def test_a_file_that_cannot_be_used_is_refused(client: TestClient, sent: AdapterFile) -> None:
    for changes, field, text in UNUSABLE:
        request = CAMPAIGN | {"adapter": sent.model_dump() | changes}
        answer = client.post("/api/v1/campaigns?dry_run=true", json=request)
        assert answer.status_code == 422
        [error] = answer.json()["errors"]
        assert error["field"] == field
        assert text in f"{error['reason']} {error['valid']}"


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"adapter": "my-scrip"}, "adapter", "no such adapter; did you mean my-script?"),
    ({"adapter": "../my-script"}, "adapter", "no such adapter"),
    (
        {"space": {"virtual_stages": [1, 2]}},
        "space.virtual_stages",
        "my-script does not vary it",
    ),
]


def test_a_simulated_campaign_is_of_its_space(client: TestClient) -> None:
    answer = client.post("/api/v1/campaigns", json=CAMPAIGN | {"evaluator": "simulated"})
    assert answer.status_code == 201, answer.text
    varied = {"evaluator": "simulated", "space": {"virtual_stages": [1, 2]}}
    [error] = client.post("/api/v1/campaigns", json=CAMPAIGN | varied).json()["errors"]
    assert error["reason"] == "my-script does not vary it"


def test_what_it_cannot_do_is_refused(client: TestClient) -> None:
    for changes, field, text in REFUSED:
        answer = client.post("/api/v1/campaigns", json=CAMPAIGN | changes)
        assert answer.status_code == 422
        [error] = [each for each in answer.json()["errors"] if each["field"] == field]
        assert text in error["reason"]


def test_the_space_has_what_the_file_mentions_and_accepts(client: TestClient) -> None:
    question = {key: CAMPAIGN[key] for key in ("model", "machine", "nodes", "evaluator", "adapter")}
    space: dict[str, Any] = {
        "activation_checkpointing": ["none", "selective", "full"],
        "flash_attention": "auto",
    }
    answer = client.post("/api/v1/plans", json=question | {"space": space}).json()
    assert answer["dimensions"]["flash_attention"] == [True]
    refused = {each["rule"]: each["count"] for each in answer["refusals"]}
    assert refused["program"] > 0
    space["activation_checkpointing"] = ["none", "full"]
    without = client.post("/api/v1/plans", json=question | {"space": space}).json()
    assert answer["legal"] == without["legal"]


def test_a_trial_that_prints_without_end_leaves_little(
    client: TestClient, running: Running, own: Settings
) -> None:
    """A line of noise before each figure, of a MB: its log is cut when it has ended."""
    script = own.adapters_dir / "train.py"
    text = script.read_text()
    figure = '        print(f"[{update}'
    assert figure in text
    noise = "        print(('noise ' * 50 + chr(10)) * 3500)\n"
    script.write_text(text.replace(figure, noise + figure))
    number = client.post("/api/v1/campaigns", json=CAMPAIGN | {"budget": {"max_trials": 1}}).json()
    address = f"/api/v1/campaigns/{number['id']}"
    running.until(lambda: client.get(address).json()["state"] == "done")
    (trial,) = client.get(f"{address}/trials").json()["items"]
    assert trial["state"] == TrialState.OK, trial
    (log,) = own.trials_dir.glob("*/attempt-*/trial.log")
    running.until(lambda: log.stat().st_size < 5_000_000)
    log_text = client.get(f"{address}/trials/1/log?lines=10000").text
    assert "[autotune left out " in log_text
    assert "\0" not in log_text


@pytest.mark.soak
def test_power_gets_from_the_log_to_the_page(
    client: TestClient,
    running: Running,
    own: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tool is a stand-in that prints what one has printed; all else is as it runs."""
    tool(tmp_path, "nvidia-smi", NVIDIA)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    script = own.adapters_dir / "train.py"
    script.write_text(script.read_text().replace("    work(4", "    time.sleep(5.0)\n    work(4"))
    space = {"micro_batch_size": 1, "gradient_accumulation_steps": 1, "zero_stage": 1}
    request = CAMPAIGN | {"space": space, "budget": {"max_trials": 1}}
    number = client.post("/api/v1/campaigns", json=request).json()["id"]
    address = f"/api/v1/campaigns/{number}"
    running.until(lambda: client.get(address).json()["state"] == "done")
    trial = client.get(f"{address}/trials/1").json()
    assert trial["gpu_joules_per_token"] > 0, trial
