"""Adapters from the command line: written, listed, shown and tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.cli.failures import ExitCode
from tests.evaluators.adapter import checked_adapters
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

WITH_WORDS = """import json, sys, time
words = dict(word.split("=", 1) for word in sys.argv[1:])
work_s = 0.02 * int(words["data.batch_size"]) * int(words["trainer.accumulate_grad_batches"])
with open(words["hydra.run.dir"] + "/metrics.jsonl", "w") as out:
    for step in range(1, int(words["trainer.max_steps"]) + 1):
        start = time.perf_counter()
        time.sleep(work_s)
        time_s = time.perf_counter() - start
        print(json.dumps({"step": step, "time": time_s, "train/loss": 5.0}), file=out, flush=True)
"""


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_ADAPTERS_DIR", str(tmp_path / "adapters"))


def test_a_first_adapter_is_written_listed_and_shown(alone: Autotune) -> None:
    words = ("adapter", "new", "mine", "--like", "template-hydra")
    written = alone.done(*words)
    assert alone("adapter", "show", "mine").out == written.out
    assert alone("adapter", "show", "template-hydra").out == written.out
    [listed] = [e for e in alone("adapter", "list", "--json").json() if e["name"] == "mine"]
    assert listed["from"] == "you"
    assert "problem" not in listed
    again = alone(*words)
    assert again.code != 0
    assert "is there already" in again.err.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "knob", "sets"),
    [
        (("adapter", "show", "megatron-lm"), "tp_overlap", ["--tp-comm-overlap"]),
        (("adapter", "show", "bundled"), "overlap", []),
        (("profiles", "frontier"), "nccl_channels", ["$NCCL_MIN_NCHANNELS"]),
    ],
)
def test_knobs_are_listed(
    alone: Autotune, words: tuple[str, ...], knob: str, sets: list[str]
) -> None:
    listed = {each["name"]: each for each in alone(*words, "--knobs", "--json").json()}
    assert listed[knob]["sets"] == sets
    assert listed[knob]["numerics"] == "reordered"
    printed = alone.done(*words, "--knobs").out
    assert all(name in printed for name in listed)
    assert "reordered" in printed


def test_the_bundled_trainer_has_knobs_and_no_file(alone: Autotune) -> None:
    ran = alone("adapter", "show", "bundled")
    assert ran.code == ExitCode.BAD_INPUT
    assert "has no adapter file (got 'bundled'; valid: --knobs" in " ".join(ran.err.split())


@pytest.mark.parametrize(
    ("words", "reason"),
    [(("mine", "--like", "hydra"), "did you mean template-hydra"), (("../a b",), "not the name")],
)
def test_an_adapter_like_none_is_not_written(
    alone: Autotune, tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    refused = alone("adapter", "new", *words)
    assert refused.code == 2
    assert reason in refused.err.replace("\n", " ")
    assert not list(tmp_path.rglob("*.toml"))


def test_the_file_for_hydra_starts_a_script_as_it_is(
    alone: Autotune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(WITH_WORDS)
    Path("one.toml").write_text(MACHINE)
    assert alone("adapter", "new", "mine", "--like", "template-hydra", "--folder", ".").code == 0
    shape = ("--model", "layers=2,hidden=64,heads=4", "--seq-length", "32")
    ran = alone("adapter", "check", "./mine.toml", *shape, "--machine", "./one.toml", "--json")
    assert ran.json()["good"], ran.out


def test_each_start_is_judged(alone: Autotune, tmp_path: Path) -> None:
    path = tmp_path / "tried.toml"
    command = f'command = ["{{python}}", "-IS", "{TRAINER}"]'
    recompute = "{'no' if activation_checkpointing == 'none' else activation_checkpointing}"
    reading = checked_adapters.MILLISECONDS + checked_adapters.ECHO
    path.write_text(
        f'{command}\n[set]{checked_adapters.ARGUMENTS}"--recompute" = "{recompute}"\n{reading}'
    )
    words = ("adapter", "check", str(path), "--folder", str(tmp_path / "starts"), "--json")
    done = alone(*words)
    found = {each["what"]: each for each in done.json()["findings"]}
    # The script has a model of its own, and takes no selective recomputation.
    selective = "activation_checkpointing selective"
    assert {what for what, each in found.items() if not each["good"]} == {"model", selective}
    assert "and tiny has" in found["model"]["text"]
    assert "invalid choice: 'selective'" in found[selective]["text"]
    assert found["activation_checkpointing full"]["good"]
    assert done.code == 1
    assert done.json()["matches"][0]["found"]["step"] == "1"


def test_a_start_that_hangs_is_ended_and_shows_its_last_line(
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
    assert "time limit" in found["text"]
    assert "waiting for the other ranks" in found["text"]
