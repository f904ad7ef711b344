"""What is guessed of a trainer from its help text and its log passes the reader of adapters, and
tells and reads what it should."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.drafting.draft import draft_of
from evaluators.adapter.drafting.help_text import command_of, needed_of, options_of
from evaluators.adapter.figures import StartPart
from evaluators.adapter.log import AdapterLog
from evaluators.adapter.names import strategy_names
from evaluators.adapter.reading import read_adapter
from tests.evaluators.adapter.samples import MACHINE, MODEL, my_script, strategy

TRAINERS = tomllib.loads((Path(__file__).parent / "drafts.toml").read_text("utf-8"))["trainer"]
BATCH = {"micro_batch_size": 2, "gradient_accumulation_steps": 1}


def _drafted(folder: Path, *, help_text: str, log: str) -> Adapter:
    path = folder / "drafted.toml"
    path.write_text(draft_of(help_text=help_text, log=log), encoding="utf-8")
    return read_adapter(path)


def _read(adapter: Adapter, lines: str) -> AdapterLog:
    log = AdapterLog(adapter.read, [[StartPart(strategy_names(MODEL, MACHINE, strategy(**BATCH)))]])
    for number, line in enumerate(lines.strip().splitlines()):
        log.take(f"[start 1 rank 0 {number / 10:.6f}s] {line}")
    return log


@pytest.mark.parametrize("trainer", TRAINERS, ids=lambda trainer: trainer["name"])
def test_a_trainer_is_told_and_read(trainer: dict[str, Any], tmp_path: Path) -> None:
    adapter = _drafted(tmp_path, help_text=trainer["help"], log=trainer["log"])
    assert trainer["set"].items() <= adapter.places.items()
    figures = _read(adapter, trainer["log"]).starts[0].figures
    times = {str(each.step): each.time_s for each in figures.iterations}
    assert times == pytest.approx(trainer["times_s"])
    assert figures.last_loss == trainer["loss"]
    assert figures.ranks[0].peak_memory_gib == trainer.get("memory_gib")


def test_nothing_at_all_gives_an_example(tmp_path: Path) -> None:
    adapter = _drafted(tmp_path, help_text="", log="")
    assert adapter.command == ("{python}", "train.py")
    assert adapter.read[0].arrival


@pytest.mark.parametrize("log", ["\x00\x1b[31m", "1 2 3\n" * 9, "'''\n" * 5, "loss 1\nloss '2\n"])
def test_whatever_a_log_holds_the_draft_can_be_read(log: str, tmp_path: Path) -> None:
    _drafted(tmp_path, help_text=log, log=log)


@pytest.mark.parametrize(
    ("line", "parameters"),
    [
        ('{"event": "model", "params": 3407872, "world": 4}', 3407872.0),
        ("Model llama3 size: 6,139,904 total parameters", 6139904.0),
        ("number of parameters on (tensor, pipeline) model parallel rank (0, 0): 345678", None),
        ("number of parameters: 10.65M", None),
    ],
)
def test_the_models_size_is_offered_where_it_is_of_the_whole_model(
    line: str, parameters: float | None, tmp_path: Path
) -> None:
    text = draft_of(log=f"{line}\nstep 1 loss 2.0\nstep 2 loss 1.9\n")
    path = tmp_path / "drafted.toml"
    before, reads, size = text.partition("# [[read]]\n# " + line)
    path.write_text(before + (reads + size).replace("# [[", "[[").replace("# log", "log"))
    assert _read(read_adapter(path), line).starts[0].figures.parameters == parameters


def test_a_script_that_nobody_has_seen(tmp_path: Path) -> None:
    """Its draft reads what the adapter that was written by hand reads."""
    log = "[1/6] loss=10.0000 12.500ms\n[2/6] loss=5.0000 11.500ms\n[3/6] loss=3.3333 11.0ms\n"
    drafted = _drafted(tmp_path, help_text="", log=log)
    read = [_read(adapter, log).starts[0].figures for adapter in (drafted, my_script(tmp_path))]
    assert read[0].iterations == read[1].iterations


def test_what_a_script_cannot_do_without(tmp_path: Path) -> None:
    text = (
        "usage: t.py [-h] --config FILE\n       [--a A [B ...]] --data D\n\noptions:\n  --other X\n"
    )
    assert needed_of(text) == ["--config", "--data"]
    shell = "Usage: run.sh [--steps N] --name NAME CONFIG <data>\nTrains what CONFIG says.\n"
    assert needed_of(shell) == ["--name", "CONFIG", "<data>"]
    assert "write them into `command`: CONFIG <data>" in draft_of(help_text=shell)
    path = tmp_path / "drafted.toml"
    path.write_text(draft_of(help_text=text, folder="/my/trainer"))
    assert '# "--data" = "…"' in path.read_text()
    assert read_adapter(path).folder == "/my/trainer"


@pytest.mark.parametrize(
    ("usage", "command"),
    [
        ("usage: train.py [-h]", ["{python}", "train.py"]),
        ("Usage: python3.11 tools/train.py [options]", ["{python}", "tools/train.py"]),
        ("usage: python -m my.trainer [-h]", ["{python}", "-m", "my.trainer"]),
        ("Usage: ./run.sh CONFIG [steps]", ["bash", "./run.sh"]),
        ("Usage:\n  sh run.sh --config FILE", ["sh", "run.sh"]),
        ("usage: /opt/it/bin/trainer <config>", ["/opt/it/bin/trainer"]),
        ("Usage: trainer [OPTIONS] COMMAND", ["trainer"]),
        ("usage: trainer fit [-h] --model M", ["trainer", "fit"]),
        ("for usage: see below.\nUsage: trainer --steps N", ["trainer"]),
        ("Its usage: ask us", []),
        ("usage: [options]", []),
    ],
)
def test_the_command_that_a_help_text_is_of(usage: str, command: list[str], tmp_path: Path) -> None:
    assert list(command_of(usage)) == command
    adapter = _drafted(tmp_path, help_text=usage, log="")
    assert list(adapter.command) == (command or ["{python}", "train.py"])


def test_options_in_all_their_forms() -> None:
    text = """
  -h, --help            show this help
  --a-b A_B, --a_b A_B
  -c C, --c.d-e {x,y}
  │ --f.g, --f.no-g     (default: True) │
  --h [H]
    --in-a-sentence is not one
    """
    options = options_of(text)
    assert [each.name for each in options] == ["--help", "--a-b", "--c.d-e", "--f.g", "--h"]
    assert [each.values for each in options if each.values] == [("x", "y")]
    assert [each.name for each in options if each.flag] == ["--help", "--f.g", "--h"]
