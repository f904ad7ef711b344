"""Adapters from the command line: written, listed, shown and tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evaluators.program import checked_adapters
from tests.server.cli.conftest import Autotune

TRAINER = Path(checked_adapters.__file__).with_name("checked_trainer.py")
MACHINE = """gpu = "none"
gpus_per_node = 1
max_nodes = 1
memory_gib = 4
memory_bandwidth_gb_per_s = 20
intra_node_gb_per_s = 10
inter_node_gb_per_s = 1
"""
HELP = """usage: train.py [-h]
  --micro-batch-size MICRO_BATCH_SIZE
  --train-iters TRAIN_ITERS
"""


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_ADAPTERS_DIR", str(tmp_path / "adapters"))


def test_a_first_adapter_is_written_listed_and_shown(alone: Autotune, tmp_path: Path) -> None:
    told, log = tmp_path / "help.txt", tmp_path / "log.txt"
    told.write_text(HELP)
    log.write_text("step 1 loss 5.1 in 20.5 ms\nstep 2 loss 5.0 in 10.5 ms\n")
    words = ("adapter", "new", "mine", "--help-text", str(told), "--log", str(log))
    written = alone(*words)
    assert written.code == 0, written.err
    assert "mine.toml searches: micro_batch_size" in written.err.replace("\n", " ")
    assert alone("adapter", "show", "mine").out == written.out
    assert "mine" in [each["name"] for each in alone("adapter", "list", "--json").json()]
    again = alone(*words)
    assert again.code != 0
    assert "is there already" in again.err.replace("\n", " ")
    missing = alone("adapter", "new", "other", "--log", str(tmp_path / "none.txt"))
    assert missing.code != 0
    assert "cannot be read: No such file" in missing.err.replace("\n", " ")


def test_a_program_that_lies_here_is_started_here(
    alone: Autotune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trainer").touch()
    (tmp_path / "help.txt").write_text("Usage: trainer --steps N")
    written = alone("adapter", "new", "mine", "--help-text", "help.txt")
    assert 'command = ["./trainer"]' in written.out
    assert f'folder = "{tmp_path}"' in written.out


def test_three_starts_are_judged(alone: Autotune, tmp_path: Path) -> None:
    path = tmp_path / "tried.toml"
    command = f'command = ["{{python}}", "-IS", "{TRAINER}"]'
    reading = checked_adapters.MILLISECONDS + checked_adapters.ECHO
    path.write_text(f"{command}\n[set]{checked_adapters.ARGUMENTS}{reading}")
    words = ("adapter", "check", str(path), "--folder", str(tmp_path / "starts"), "--json")
    done = alone(*words)
    found = {each["what"]: each for each in done.json()["findings"]}
    # The script has a model of its own, and says so.
    assert {what for what, each in found.items() if not each["good"]} == {"model"}
    assert "and tiny has" in found["model"]["told"]
    assert done.code == 1
    assert done.json()["matches"][0]["found"]["step"] == "1"


def test_a_start_that_hangs_is_ended_and_told_by_its_last_line(
    alone: Autotune, tmp_path: Path
) -> None:
    path, machine = tmp_path / "hangs.toml", tmp_path / "node.toml"
    command = f'command = ["{{python}}", "-IS", "{TRAINER}", "--hang"]'
    path.write_text(f"{command}\n[set]{checked_adapters.ARGUMENTS}{checked_adapters.MILLISECONDS}")
    machine.write_text(MACHINE)
    words = ("adapter", "check", str(path), "--folder", str(tmp_path / "starts"), "--json")
    done = alone(*words, "--machine", str(machine), "--time-limit", "8")
    assert done.code == 1
    [found] = done.json()["findings"]
    assert found["what"] == "GAS 1"
    assert "time limit" in found["told"]
    assert "waiting for the other ranks" in found["told"]


def test_a_value_that_the_trainer_does_not_take_is_found(alone: Autotune, tmp_path: Path) -> None:
    path = tmp_path / "tried.toml"
    command = f'command = ["{{python}}", "-IS", "{TRAINER}"]'
    recompute = "{'no' if activation_checkpointing == 'none' else activation_checkpointing}"
    path.write_text(
        f"{command}\n[set]{checked_adapters.ARGUMENTS}"
        f'"--recompute" = "{recompute}"\n{checked_adapters.MILLISECONDS}'
    )
    words = ("adapter", "check", str(path), "--folder", str(tmp_path / "starts"), "--json")
    found = {each["what"]: each for each in alone(*words).json()["findings"]}
    assert found["activation_checkpointing full"]["good"]
    assert not found["activation_checkpointing selective"]["good"]
    assert "invalid choice: 'selective'" in found["activation_checkpointing selective"]["told"]
