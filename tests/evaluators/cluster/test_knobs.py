"""Knobs of profiles: variables and options of srun, before anything runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluators.adapter.catalog import load_adapter
from evaluators.adapter.knob_refusals import knob_refusals, names_with_knobs
from evaluators.adapter.rendering import capabilities_of_adapter
from evaluators.cluster import load_profile, profile_names, read_profile
from evaluators.cluster.catalog import profile_as_dict, profile_from_dict
from evaluators.cluster.knobs import knobs_of_profile, profile_with
from evaluators.trainer.support import CAPABILITIES
from search_spaces.catalog import load_machine, load_model
from search_spaces.dimensions import Scalar
from search_spaces.errors import InvalidInputs
from search_spaces.knob import Knob
from tests.evaluators.frameworks.strategies import BASE

MODEL, FRONTIER = load_model("gpt-22b"), load_machine("frontier")
TUNER = """
[slurm]
account = "abc123"
[knob.tuner]
meaning = "a table of algorithms for NCCL"
values = ["default", "/shared/tuner.csv"]
numerics = "reordered"
set = { "$NCCL_TUNER_CONFIG_FILE" = "{None if tuner == 'default' else tuner}" }
"""


def chosen_names(knobs: Any, chosen: dict[str, Scalar]) -> Any:
    return names_with_knobs(knobs, chosen, transformer=MODEL, machine=FRONTIER, strategy=BASE)


SITES = [name for name in profile_names() if name != "generic"]


@pytest.mark.parametrize("name", SITES)
def test_first_values_leave_a_profile_as_it_is(name: str) -> None:
    profile = load_profile(name)
    knobs = knobs_of_profile(profile)
    assert knobs
    assert profile_with(profile, knobs, chosen_names(knobs, {})) == profile


@pytest.mark.parametrize("name", SITES)
def test_other_values_change_what_a_job_gets(name: str) -> None:
    profile = load_profile(name)
    knobs = knobs_of_profile(profile)
    for knob, one in knobs.items():
        found = {
            value: profile_with(profile, knobs, chosen_names(knobs, {knob: value}))
            for value in one.values
        }
        same = [value for value, each in found.items() if each == profile]
        assert len(same) < len(found), knob  # a site may set one of them already


def test_values_are_variables_and_options_of_srun() -> None:
    profile = load_profile("lumi-g")
    knobs = knobs_of_profile(profile)
    chosen: dict[str, Scalar] = {"nccl_channels": 32, "cpu_binding": "cores", "eager_bytes": 0}
    found = profile_with(profile, knobs, chosen_names(knobs, chosen))
    assert found.tasks.srun == (*profile.tasks.srun, "--cpu-bind=cores")
    assert found.environment.variables == {
        **profile.environment.variables,
        "NCCL_MIN_NCHANNELS": "32",
        "FI_CXI_RDZV_THRESHOLD": "0",
    }
    bound = replace(profile, tasks=replace(profile.tasks, srun=("--cpu-bind=none",)))
    words = profile_with(bound, knobs, chosen_names(knobs, chosen)).tasks.srun
    assert words == ("--cpu-bind=cores",)


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


def test_refusals_look_at_trainer_and_profile() -> None:
    adapter, machine = load_adapter("megatron-lm"), load_machine("perlmutter")
    profile = knobs_of_profile(load_profile("perlmutter"))
    layout = {"transformer": MODEL, "machine": machine, "strategy": replace(BASE, num_nodes=8)}
    of_lm = {"program": capabilities_of_adapter(adapter), "taken": adapter.places}
    taken = knob_refusals({**profile, **adapter.knobs}, {"nccl_queues": 4}, **layout, **of_lm)  # type: ignore[arg-type]
    assert taken == []
    nvls = Knob(
        meaning="",
        numerics="reordered",
        values=("default", "1"),
        set={"$NCCL_NVLS_ENABLE": "{None if switches == 'default' else switches}"},
    )
    (fault,) = knob_refusals({"switches": nvls}, {"switches": "1"}, **layout, **of_lm)  # type: ignore[arg-type]
    assert "megatron-lm sets $NCCL_NVLS_ENABLE itself" in str(fault)
    legal = replace(BASE, num_nodes=1, pipeline_parallel=1)
    alone = {"transformer": MODEL, "machine": machine, "strategy": legal}
    (fault,) = knob_refusals(profile, {"nccl_queues": 4}, **alone, program=CAPABILITIES)  # type: ignore[arg-type]
    assert "it changes nothing on this layout, but where num_nodes > 1" in str(fault)
