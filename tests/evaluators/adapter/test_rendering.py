from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.adapter.places import ConfigFile
from evaluators.adapter.reading import read_adapter
from evaluators.adapter.rendering import StartPlan, TrainerStart, start_of
from search_spaces.errors import InvalidInput, InvalidInputs
from tests.evaluators.adapter.samples import MACHINE, MODEL, my_script, strategy


def _start(folder: Path, text: str = "", **changed: object) -> TrainerStart:
    adapter = my_script(folder)
    if text:
        path = folder / "other.toml"
        path.write_text(text + "\n[[read]]\nlog = '(?P<iteration_time_s>x)'\n")
        adapter = read_adapter(path)
    plan = StartPlan(
        transformer=MODEL,
        machine=MACHINE,
        strategy=strategy(**changed),
        iterations=6,
        python="/usr/bin/python3",
        out="/tmp/start-1",
    )
    return start_of(adapter, plan)


def test_a_strategy_becomes_command_environment_and_files(tmp_path: Path) -> None:
    start = _start(
        tmp_path, tensor_parallel=2, gradient_accumulation_steps=8, zero_stage=1,
        activation_checkpointing="full", sequence_parallel=True,
    )  # fmt: skip
    assert start.words == (
        *("/usr/bin/python3", "train.py", "--config", "/tmp/start-1/conf.json"),
        *("--slices", "2", "--stages", "1", "--per-device-batch", "1", "--updates", "6"),
        *("--recompute", "yes", "--norms-too"),
    )
    assert start.variables == {"MIX": "fp32"}
    # The user's own keys lie under those that are set.
    conf = {"lr": 0.001, "accumulate": 8, "zero": 1, "data": {"name": "mine"}}
    assert json.loads(start.files["conf.json"]) == conf


def test_every_kind_of_place(tmp_path: Path) -> None:
    start = _start(
        tmp_path,
        """command = ["run", "{num_layers}"]
[set]
"--flag" = true
"--no-flag" = "{sequence_parallel}"
"--several" = ["{tensor_parallel}", 2, "x"]
"--joined=" = "{global_batch_size}"
"model.tp" = "{tensor_parallel}"
"--absent" = "{None}"
"$LIST" = ["a", "{num_nodes}"]
"c.yaml:a.b" = "{1 / 100000}"
"c.yaml:a.c" = [1, "{flash_attention}"]
"d.toml:top" = "{seq_length}"
"d.toml:a.b.c" = "it's {precision}"
""",
        gradient_accumulation_steps=1,
    )
    words = ["run", "4", "--flag", "--several", "1", "2", "x", "--joined=2", "model.tp=1"]
    assert list(start.words) == words
    assert start.variables == {"LIST": "a,1"}
    assert yaml.safe_load(start.files["c.yaml"]) == {"a": {"b": 1e-5, "c": [1, True]}}
    toml = {"top": 32, "a": {"b": {"c": "it's fp32"}}}
    assert tomllib.loads(start.files["d.toml"]) == toml


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"precision": "fp16"}, "my-script cannot run this layout: the script has no such choice"),
        ({"virtual_stages": 2}, "no virtual_stages: its value is always 1"),
        ({"flash_attention": False}, "no flash_attention: its value is always True"),
    ],
)
def test_what_the_trainer_cannot_do_is_refused(
    tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        _start(tmp_path, **changed)


def test_a_key_under_a_value_that_is_no_table(tmp_path: Path) -> None:
    adapter = my_script(tmp_path, change=("conf.json:zero", "conf.json:lr.zero"))
    plan = StartPlan(transformer=MODEL, machine=MACHINE, strategy=strategy(), iterations=2)
    with pytest.raises(InvalidInput, match="lr is not a table in the user's file"):
        start_of(adapter, plan)


_SCALARS = st.one_of(
    st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), st.text(max_size=8)
)
_TABLES = st.recursive(
    st.dictionaries(st.text(min_size=1, max_size=6), _SCALARS | st.lists(_SCALARS, max_size=3)),
    lambda inner: st.dictionaries(st.text(min_size=1, max_size=6), inner | _SCALARS, max_size=3),
    max_leaves=6,
)


@settings(max_examples=20)
@given(table=_TABLES)
def test_a_file_reads_back_as_it_was_written(table: dict[str, Any]) -> None:
    for ending in ("json", "yaml", "toml"):
        text = ConfigFile(format=ending, table=table).text
        assert ConfigFile.read(f"a.{ending}", text).table == table, ending


CONFIG = "# mine\nbatch = 12\nbatch_all = 12 * 8\noptim = dict(lr=1e-3, fused=True)\n"


def _texts(folder: Path, *places: str) -> TrainerStart:
    (folder / "mine.py").write_text(CONFIG)
    text = 'command = ["run"]\nbase = { "conf.py" = "mine.py" }\n[set]\n' + "\n".join(places)
    return _start(folder, text)


def test_texts_in_a_file_of_any_kind(tmp_path: Path) -> None:
    start = _texts(
        tmp_path,
        '"conf.py:batch = 12" = "batch = {micro_batch_size}"',
        '"conf.py:batch_all = 12 * 8" = "batch = 12"',
        '"conf.py:, fused=True" = "{None}"',
    )
    text = "# mine\nbatch = 1\nbatch = 12\noptim = dict(lr=1e-3)\n"
    assert start.files == {"conf.py": text}


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("conf.py:12", "it occurs 2 times in the user's file"),
        ("conf.py:batch_al = 12 * 8", "did you mean 'batch_all = 12 \\* 8'"),
        ("my.ini:steps = 4", "texts can be replaced only in a file"),
    ],
)
def test_a_text_that_is_not_there_once(place: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises((InvalidInput, InvalidInputs), match=reason):
        _texts(tmp_path, '"conf.py:batch = 12" = 1', f'"{place}" = 1')
