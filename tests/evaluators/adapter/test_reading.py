from __future__ import annotations

from pathlib import Path

import pytest

from autotune.calibration import general_knowledge
from evaluators.adapter.reading import read_adapter
from evaluators.adapter.rendering import capabilities_of_adapter
from search_spaces.catalog import load_machine
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.program import USUAL_STATES
from tests.evaluators.adapter.samples import my_script


def test_twenty_odd_lines_are_a_whole_adapter(tmp_path: Path) -> None:
    adapter = my_script(tmp_path)
    assert (adapter.name, adapter.folder) == ("my-script", str(tmp_path))
    assert (adapter.warmup_iterations, adapter.evidence) == (3, "unchecked")
    assert '"name": "mine"' in adapter.base["conf.json"]
    assert adapter.varied == {
        *("tensor_parallel", "pipeline_parallel", "micro_batch_size", "zero_stage", "num_nodes"),
        *("gradient_accumulation_steps", "activation_checkpointing", "sequence_parallel"),
        "precision",
    }


def test_the_digest_changes_with_the_users_own_file(tmp_path: Path) -> None:
    first = my_script(tmp_path)
    (tmp_path / "my.json").write_text('{"lr": 0.01}')
    second = read_adapter(tmp_path / "my-script.toml")
    assert first.digest != second.digest
    assert second.label == f"my-script {second.digest[:12]}"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("command =", "comand =", "comand=.*unknown; did you mean command"),
        ("because =", "reason =", r"refuse\[0\].reason=.*valid: when, because"),
        ("iteration_time_s =", "iteration_time =", "did you mean iteration_time_s"),
        ("{zero_stage}", "{zero}", "unknown name zero; did you mean zero_stage"),
        ('"ms / 1000"', '"msec / 1000"', "unknown name msec; did you mean ms"),
        ("precision == 'fp16'", "precision = 'fp16'", r"refuse\[0\].when.*invalid syntax at"),
        ("precision == 'fp16'", "iterations == 6", "unknown name iterations"),
        ('"$MIX"', '"$RANK"', "autotune itself sets this variable"),
        ('"conf.json:zero"', '"../conf.json:zero"', "not a file that can be written"),
        ('"conf.json:zero"', '"conf.ini:zero"', "only in a file that base names"),
        ('"my.json"', '"mine.json"', "base.conf.json=.*cannot be read"),
        ('"my.json"', '"train.py"', "not JSON"),
        ('"conf.json" = "my.json"', '"other.json" = "my.json"', "no key of .set. is in this"),
        ("(?P<mb>", "(?P<mb", r"read\[2\].log=.*not a regular expression"),
        ("(?P<mb>", "(?:", "it has no named group"),
        ('"mb / 1024"', '"mb / 1024"\ncsv = "x"', "one source, not several"),
        ("log = 'peak", "name = 'peak", "a reader has one source"),
        ('iteration_time_s = "ms / 1000"', "", "no pattern reads the time of an iteration"),
        ("[set]", "[fixed]\nzero_stage = 1\n[set]", "sets this dimension"),
        ("[set]", "[fixed]\nvirtual_stage = 1\n[set]", "did you mean virtual_stages"),
        ("[set]", '[fixed]\nprecision = "fp64"\n[set]', "not a value of this dimension"),
        ("[set]", "[set]\n'--a' = 1979-05-27", "not a value that can be set"),
        ("[set]", "[one_start]\nwhen = 'True'\n[set]", "one_start.set=.*both batches"),
        (
            "[set]",
            "[one_start.set]\n'--a' = '{iterations}'\n[set]",
            "does not mention the first GAS",
        ),
        ("[set]", "[one_start.set]\n'--a' = '{first_gas}'\n[set]", "unknown name first_gas"),
        (
            "[set]",
            "[one_start]\nwhen = 'last_iterations > 1'\n[set]",
            "unknown name last_",
        ),
        ("[set]", "[one_start]\nwhere = 1\n[set]", "valid: when, set"),
        ("command =", "evidence = 'surely'\ncommand =", "valid: unchecked, read, parsed"),
        ("command =", "tuning = 'much'\ncommand =", "valid: vendor, usual, plain"),
        ("command =", "states.master_bytes = 3\ncommand =", "valid: 0, 1, 2, 4"),
        ("command =", "states.master = 2\ncommand =", "states.master"),
        ("command =", "states.gated_activation_bytes = 4\ncommand =", "valid: 6, 8, 10"),
        ("command =", "trains = ['moe']\ncommand =", "valid: experts, interleaved_experts"),
        ("command =", "warmup_iterations = 0\ncommand =", "not a number of iterations"),
        ('["{python}", "train.py"]', '"python train.py"', "not a list of words"),
        ("command =", "prepare = 'make'\ncommand =", "prepare=.*not a list of words"),
        ("because =", "file = 'train.py'\nbecause =", "file and a pattern go together"),
        ("because =", "file = 'a'\npattern = '('\nbecause =", "pattern=.*not a regular expr"),
    ],
)
def test_what_is_wrong_is_told_with_file_key_and_what_would_do(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    with pytest.raises(InvalidInputs, match=told) as refused:
        my_script(tmp_path, change=(old, new))
    assert str(tmp_path / "my-script.toml") in str(refused.value)


@pytest.mark.parametrize(("file", "refusals"), [("train.py", 2), ("my.json", 1), ("gone.py", 1)])
def test_a_refusal_may_depend_on_the_trainers_source(
    tmp_path: Path, file: str, refusals: int
) -> None:
    seen = f"[[refuse]]\nfile = '{file}'\npattern = '^import json$'\nwhen = 'gated_mlp'\n"
    more = f"{seen}because = 'it has a fault'\n[set]"
    assert len(my_script(tmp_path, change=("[set]", more)).refuse) == refusals


def test_the_bytes_of_states_decide_what_is_believed_of_memory(tmp_path: Path) -> None:
    """Gradients of 2 bytes and 16-bit moments leave 2 + 2 + 4 + 4 of the usual 2 + 4 + 4 + 8."""
    widths = "gradient_bytes = 2, moment_bytes = 2, gated_activation_bytes = 10"
    states = f"states = {{ {widths} }}\ncommand ="
    program = capabilities_of_adapter(my_script(tmp_path, change=("command =", states)))
    machine = load_machine("dgx-a100")
    told, usual = (
        general_knowledge(machine, program.tuning, widths).parameters
        for widths in (program.states, USUAL_STATES)
    )
    assert (told.gradient_bytes, told.full_gradient_bytes, told.moment_bytes) == (2, 2, 2)
    assert (told.gated_activation_bytes, usual.gated_activation_bytes) == (10, 6)
    assert (usual.full_gradient_bytes, usual.master_bytes, usual.moment_bytes) == (4, 4, 4)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("comand = 1\nset = 3\n[[read]]\nlogs = 'x'\n")
    with pytest.raises(InvalidInputs) as refused:
        read_adapter(path)
    fields = [problem.field for problem in refused.value.problems]
    assert fields == ["comand", "command", "set", "read[0].logs", "read[0]"]


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[")
    with pytest.raises(InvalidInput, match="not TOML"):
        read_adapter(tmp_path / "a.toml")
    with pytest.raises(InvalidInput, match="not the name of an adapter"):
        read_adapter(tmp_path / "a b.toml")
