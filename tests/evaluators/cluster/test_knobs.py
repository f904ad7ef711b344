"""Knobs of profiles: variables and options of srun, before anything runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evaluators.adapter.catalog import load_adapter
from evaluators.artefacts import artefacts, trainer_artefacts
from evaluators.artefacts.job import Launch
from evaluators.cluster import load_profile, profile_names, read_profile
from evaluators.cluster.catalog import profile_as_dict, profile_from_dict
from evaluators.cluster.knobs import knobs_of_profile, profile_of_run, read_knob_file
from evaluators.cluster.profile import ClusterProfile
from evaluators.program.support import program_of
from search_spaces.catalog import load_machine, load_model
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.strategy import Strategy
from tests.autotune.records import strategy
from tests.evaluators.local.trials import request

MODEL, FRONTIER = load_model("gpt-22b"), load_machine("frontier")
STRATEGY = strategy(tp=8, pp=1, gas=4)
TUNER = """
[slurm]
account = "abc123"
[knob.tuner]
meaning = "a table of algorithms for NCCL"
values = ["default", "/shared/tuner.csv"]
numerics = "reordered"
set = { "$NCCL_TUNER_CONFIG_FILE" = "{None if tuner == 'default' else tuner}" }
"""


def run(layout: Strategy) -> Launch:
    return Launch(
        transformer=MODEL, machine=FRONTIER, strategy=layout, name="run", evaluator="slurm"
    )


SITES = [name for name in profile_names() if name != "generic"]


@pytest.mark.parametrize("name", SITES)
def test_a_ready_profile_has_knobs(name: str) -> None:
    knobs = knobs_of_profile(load_profile(name))
    assert knobs
    assert all(len(knob.values) > 1 and knob.set for knob in knobs.values())


def test_a_profile_adds_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('knobs_from = ["nccl"]\n' + TUNER)
    profile = read_profile(path)
    assert [*knobs_of_profile(profile)][-1] == "tuner"
    assert profile_from_dict(profile_as_dict(profile), source="itself") == profile


@pytest.mark.parametrize(
    ("old", "new", "field", "reason"),
    [
        ("[slurm]", 'knobs_from = ["ncl"]\n[slurm]', "knobs_from[0]", "no such catalogue"),
        ("$NCCL_TUNER_CONFIG_FILE", "--ntasks", "knob.tuner.set.--ntasks", "sets this for each"),
        ("$NCCL_TUNER_CONFIG_FILE", "$RANK", "knob.tuner.set.$RANK", "autotune itself"),
        ("[knob.tuner]", "[knob.precision]", "knob.precision.values", "not a value"),
        ("reordered", "same", "knob.tuner.numerics", "not one of them"),
        ("numerics", "numeric", "knob.tuner.numeric", "unknown"),
        ("tuner == ", "tuner = ", "knob.tuner.set.$NCCL_TUNER_CONFIG_FILE", "tuner = "),
    ],
)
def test_an_invalid_knob_is_refused(
    tmp_path: Path, old: str, new: str, field: str, reason: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TUNER.replace(old, new, 1))
    with pytest.raises(InvalidInputs) as raised:
        read_profile(path)
    problems = {each.field: str(each) for each in raised.value.problems}
    assert reason in problems[field], problems


def test_a_run_has_what_its_knobs_set(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('knobs_from = ["binding"]\n' + TUNER)
    profile = read_profile(path)
    assert profile_of_run(profile, run(STRATEGY)) == profile
    chosen = (("cpu_binding", "cores"), ("tuner", "/shared/tuner.csv"), ("unknown", 1))
    changed = profile_of_run(profile, run(replace(STRATEGY, settings=chosen)))
    assert changed.environment.variables["NCCL_TUNER_CONFIG_FILE"] == "/shared/tuner.csv"
    assert "--cpu-bind=cores" in changed.tasks.srun
    usual = (("cpu_binding", "default"), ("tuner", "default"))
    assert profile_of_run(profile, run(replace(STRATEGY, settings=usual))) == profile


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("knob = 1", "knob"),
        ("[knobs.tuner]", "knob_file"),
        ("[knob", "knob_file"),
        (
            TUNER.partition("[knob")[1] + TUNER.partition("[knob")[2].replace("$N", "N"),
            "knob.tuner.set",
        ),
    ],
)
def test_an_invalid_file_of_knobs_is_refused(text: str, field: str) -> None:
    with pytest.raises((InvalidInput, InvalidInputs)) as refused:
        read_knob_file(text)
    problems = getattr(refused.value, "problems", [refused.value])
    assert problems[0].field.startswith(field)


def knob(values: str, *more: str, name: str = "tuner") -> str:
    return "\n".join(
        [f"[knob.{name}]", 'meaning = "m"', 'numerics = "identical"', f"values = {values}", *more]
    )


SET = 'set = { "$TUNER" = "{tuner}" }'


@pytest.mark.parametrize(
    ("text", "field", "reason"),
    [
        (knob("[1, 2]", name="micro_batch_size"), "values", "another layout or batch"),
        (knob("[1, 2]", name="tensor_parallel"), "values", "another layout or batch"),
        (knob('["a", "b\\u0000"]', SET), "values", "without line breaks"),
        (knob('["a", "b\\nc"]', SET), "values", "without line breaks"),
        (knob("[1, 9000000000000000001]", SET), "values", "at most 1e+18"),
        (knob("[1, 2]", 'set = { "$A" = "b\\u0000" }'), "set.$A.", "NUL"),
        (knob("[1, 2]", 'set = { "$A" = "{1 / (tuner - 2)}" }'), "set.$A", "where tuner is 2"),
        (knob("[1, 2]", 'set = { "$UID" = "{tuner}" }'), "set.$UID", "bash itself"),
    ],
)
def test_a_value_that_no_trial_can_have_is_refused(text: str, field: str, reason: str) -> None:
    with pytest.raises(InvalidInputs) as refused:
        read_knob_file(text)
    found = {
        each.field.partition(".")[2].partition(".")[2]: each for each in refused.value.problems
    }
    assert any(name.startswith(field) and reason in str(found[name]) for name in found), found


def test_a_setting_without_a_value_is_refused() -> None:
    setting = 'set = { "$A" = "{tuner / (micro_batch_size - 2)}" }'
    profile = ClusterProfile(name="c", knob=read_knob_file(knob("[1, 2]", setting)))
    layout = replace(STRATEGY, micro_batch_size=2, settings=(("tuner", 2),))
    with pytest.raises(InvalidInput, match="divides by zero") as refused:
        profile_of_run(profile, run(layout))
    assert refused.value.field == "set.$A"


def test_knobs_of_a_cluster_go_with_an_adapter(tmp_path: Path) -> None:
    knobs = read_knob_file(knob('["a", "$(b) c"]', SET))
    profile = ClusterProfile(name="c", adapter=load_adapter("megatron-lm"), knob=knobs)
    layout = replace(
        STRATEGY,
        activation_checkpointing="none",
        settings=(("cuda_graphs", "attn"), ("tuner", "$(b) c")),
    )
    attempt = replace(request(tmp_path, layout, ranks=8), transformer=MODEL, machine=FRONTIER)
    [plan] = (
        text
        for name, text in program_of(profile).files(attempt, tmp_path / "t" / "attempt-1").items()
        if name == "start-1.json"
    )
    assert "--cuda-graph" in plan
    assert profile_of_run(profile, attempt).environment.variables["TUNER"] == "$(b) c"
    files = artefacts(replace(run(layout), profile=profile, knobs={"tuner": "$(b) c, 3 % faster"}))
    scripts = [text for name, text in files.items() if name.endswith(".sbatch")]
    assert scripts
    assert all("export TUNER='$(b) c'" in text for text in scripts)


def test_files_of_another_trainer_leave_its_own_knobs_out() -> None:
    knobs = read_knob_file(knob('["a", "b"]', SET))
    layout = replace(STRATEGY, settings=(("allgather_bucket", 50000000), ("tuner", "b")))
    gains = {"allgather_bucket": "50000000, 2 % faster", "tuner": "b, 3 % faster"}
    launch = replace(run(layout), profile=ClusterProfile(name="c", knob=knobs), knobs=gains)
    for name, text in trainer_artefacts(launch, "megatron-lm").items():
        assert "allgather_bucket" not in text, name
        if name.endswith(".sbatch"):
            assert "export TUNER=b" in text
