"""Commands that need no service, the manual, and the examples of --help."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import httpx2
import pytest

from server.cli.application import COMMANDS, GROUPS
from server.cli.check import Check
from server.cli.checkup import data_folder, examine, nearest_existing
from server.cli.examples import EXAMPLES
from server.cli.manual import manual
from server.cli.port import listening_socket
from server.settings import Settings
from server.store import Store
from tests.server.cli.conftest import Autotune
from tests.serving import Served

MANUAL = Path(__file__).parents[3] / "docs" / "cli.md"
STUDY = (
    *("predict", "--model", "gpt-175b", "--machine", "frontier", "--tp", "4", "--pp", "16"),
    *("--gas", "640", "--num-nodes", "16", "--precision", "fp16"),
)
SHAPE = ("--layers", "24", "--hidden", "2048", "--heads", "16")


def test_the_manual_is_what_the_commands_say() -> None:
    assert MANUAL.read_text() == manual(), "run: python -m server.cli.manual > docs/cli.md"


def names() -> list[str]:
    """Of all commands, as they are typed."""
    single = [name for panel in COMMANDS.values() for name in panel]
    double = [f"{group} {name}" for group, members in GROUPS.items() for name in members]
    return [*single, *GROUPS, *double]


@pytest.mark.parametrize("name", names())
def test_every_command_teaches(alone: Autotune, name: str) -> None:
    ran = alone(*name.split(), "--help")
    assert ran.code == 0
    for example in EXAMPLES.get(name, ()):
        assert example[:60] in ran.out


def test_the_help_names_the_exit_codes(alone: Autotune) -> None:
    words = " ".join(alone("--help").out.split())
    assert "2 bad input" in words
    assert "3 no service answers" in words


@pytest.mark.parametrize("example", [*EXAMPLES["predict"], *EXAMPLES["space"]])
def test_the_examples_run(alone: Autotune, example: str) -> None:
    ran = alone(*shlex.split(example)[1:])
    assert ran.code == 0, ran.err
    assert ran.out


def test_predict_in_words_and_as_json(alone: Autotune) -> None:
    ran = alone(*STUDY)
    assert "legal, fits (predicted)" in ran.out
    assert "GiB" in ran.out
    answer = alone(*STUDY, "--json").json()
    assert answer["legal"]
    assert answer["fits"]
    assert answer["global_batch_size"] == 1280


def test_another_memory_than_the_machines(alone: Autotune) -> None:
    fits, usable = alone(*STUDY, "--json").json(), alone(*STUDY, "--memory-gib", "32", "--json")
    assert fits["machine"]["memory_gib"] == 64
    assert usable.code == 1
    assert usable.json()["machine"] == fits["machine"] | {"memory_gib": 32}
    assert usable.json()["fits"] is False
    refused = alone(*STUDY, "--memory-gib", "0")
    assert refused.code == 2
    assert "memory_gib" in refused.err


def test_predict_an_illegal_strategy(alone: Autotune) -> None:
    arguments = ("predict", "--model", "gpt-22b", "--machine", "frontier", "--tp", "5")
    ran = alone(*arguments)
    assert ran.code == 1
    assert "48 attention heads are not divisible by tensor_parallel 5" in ran.out
    assert alone(*arguments, "--json").json()["legal"] is False


def test_predict_a_strategy_that_does_not_fit(alone: Autotune) -> None:
    ran = alone("predict", "--model", "gpt-175b", "--machine", "frontier")
    assert ran.code == 1
    assert "does not fit" in ran.out


def test_a_custom_shape(alone: Autotune) -> None:
    answer = alone("predict", *SHAPE, "--machine", "dgx-a100", "--json").json()
    assert answer["model"]["ffn_hidden_size"] == 8192
    longer = ("--model", "gpt-1.4b", "--seq-length", "4096", "--machine", "dgx-a100")
    assert alone("predict", *longer, "--json").json()["model"]["seq_length"] == 4096


def test_a_hugging_face_config(alone: Autotune, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    config = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_ctx": 1024}
    path.write_text(json.dumps({**config, "n_positions": 1024, "vocab_size": 50257}))
    ran = alone("space", "--model", str(path), "--machine", "polaris", "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["model"]["hidden_size"] == 768


def test_space_counts_what_each_rule_removes(alone: Autotune) -> None:
    arguments = ("space", "--model", "gpt-175b", "--machine", "frontier", "--nodes", "16")
    ran = alone(*arguments, "--space", "table-v")
    assert "3,264" in ran.out
    assert "world_size" in ran.out
    narrowed = alone(*arguments, "--space", "table-v", "--tp", "8", "--num-nodes", "16", "--json")
    assert narrowed.json()["raw"] == 408


def test_a_space_where_nothing_fits(alone: Autotune) -> None:
    ran = alone("space", "--model", "gpt-1t", "--machine", "frontier")
    assert ran.code == 1
    assert "the least number of nodes that would do is" in ran.err


def test_the_catalog(alone: Autotune) -> None:
    assert "gpt-175b" in alone("models").out
    assert {m["name"] for m in alone("models", "--json").json()} >= {"tiny", "gpt-1t"}
    assert "MI250X" in alone("machines").out
    assert {m["name"] for m in alone("machines", "--json").json()} >= {"local", "frontier"}


def test_doctor(alone: Autotune, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_DATA_DIR", str(tmp_path / "data"))
    ran = alone("doctor")
    assert ran.code == 0, ran.out
    for name in (
        "Python",
        "data folder",
        "database",
        "torch",
        "deepspeed",
        "GPUs",
        "port",
        "Slurm",
    ):
        assert name in ran.out
    checks = alone("doctor", "--json").json()
    assert {check["status"] for check in checks} <= {"ok", "warn"}
    assert not (tmp_path / "data").exists()


def test_doctor_finds_what_fails(alone: Autotune, tmp_path: Path) -> None:
    (tmp_path / "autotune.db").write_text("this is no database" * 100)
    ran = alone("doctor", "--data-dir", str(tmp_path), "--json")
    assert ran.code == 1
    [failed] = [check for check in ran.json() if check["status"] == "fail"]
    assert failed["name"] == "database"
    assert "not a database" in failed["found"]
    assert failed["advice"]


def test_doctor_on_a_database_that_is_in_use(alone: Autotune, tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/autotune.db")
    store.upgrade()
    store.close()
    checks = alone("doctor", "--data-dir", str(tmp_path), "--json").json()
    [found] = [check["found"] for check in checks if check["name"] == "database"]
    assert "up to date" in found


def test_a_data_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check = data_folder(Settings(data_dir=tmp_path / "file" / "inner"))
    assert check.status == "fail"
    assert check.advice
    assert nearest_existing(tmp_path / "file" / "inner") == tmp_path / "file"


def test_a_port_in_use_is_a_warning(tmp_path: Path) -> None:
    with listening_socket("127.0.0.1", 0) as taken:
        settings = Settings(data_dir=tmp_path, port=taken.getsockname()[1])
        # Whoever has it closes each connection with no answer.
        thread = threading.Thread(target=lambda: taken.accept()[0].close())
        thread.start()
        assert _port_of(settings).status == "warn"
        thread.join()
    assert _port_of(settings).status == "ok"


def test_a_service_at_the_port_is_fine(service: Served, tmp_path: Path) -> None:
    port = httpx2.URL(service.url).port
    assert port is not None
    found = _port_of(Settings(data_dir=tmp_path, port=port))
    assert (found.status, found.found) == ("ok", f"a service runs at {service.url}")


def _port_of(settings: Settings) -> Check:
    [check] = [check for check in examine(settings) if check.name == "port"]
    return check


def test_the_commands_start_without_heavy_libraries() -> None:
    heavy = "{'torch', 'deephyper', 'deepspeed', 'altair', 'vl_convert', 'sqlalchemy', 'fastapi'}"
    program = f"import server.cli, sys; print({heavy} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
