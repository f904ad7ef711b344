from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from evaluators.cluster import ClusterProfile, profile_as_dict, profile_from_dict
from evaluators.cluster.profile import Environment, Pilot, Scheduling
from search_spaces.errors import InvalidInput, InvalidInputs
from tests.evaluators.cluster.texts import PROFILES

HERE = {"HOME": "/home/me", "SCRATCH": "/scratch/me", "ODD": "a$b ~"}


def read(environ: dict[str, str] | None = None, **tables: Any) -> ClusterProfile:
    return profile_from_dict({"name": "mine"} | tables, source="mine.toml", environ=environ)


def refused(environ: dict[str, str] | None = None, **tables: Any) -> dict[str, InvalidInput]:
    with pytest.raises(InvalidInputs) as refusal:
        read(environ, **tables)
    return {problem.field: problem for problem in refusal.value.problems}


def test_a_name_is_enough() -> None:
    assert read() == ClusterProfile(name="mine")


@settings(max_examples=50, deadline=None)
@given(PROFILES)
def test_a_profile_comes_back_from_json_as_it_was(profile: ClusterProfile) -> None:
    document = json.dumps(profile_as_dict(profile))
    assert profile_from_dict(json.loads(document), source="the store") == profile


def test_whole_numbers_become_floats_where_these_are_meant() -> None:
    profile = read(polling={"interval_s": 2}, pilot={"time_limit_h": 6, "nodes": 4})
    assert isinstance(profile.polling.interval_s, float)
    assert profile.pilot == Pilot(nodes=4, time_limit_h=6.0)


@pytest.mark.parametrize(
    ("tables", "field", "reason"),
    [
        ({"slurm": {"acount": "x"}}, "slurm.acount", "unknown; did you mean account?"),
        ({"slrm": {}}, "slrm", "unknown; did you mean slurm?"),
        ({"account": "x"}, "account", "unknown; did you mean slurm.account?"),
        ({"slurm": {"cpus_per_task": 7}}, "slurm.cpus_per_task", "did you mean tasks.cpus_per_ta"),
        ({"slurm": {"python": "p"}}, "slurm.python", "unknown; did you mean python?"),
        ({"qqqq": 1}, "qqqq", "unknown (in mine.toml)"),
        ({"slurm": "abc"}, "slurm", "not a section"),
        ({"name": ""}, "name", "empty"),
        ({"name": 3}, "name", "not text; write it in quotes"),
        ({"description": "a\0b"}, "description", "a character that no file can hold"),
        ({"description": "\ud800"}, "description", "a character that no file can hold"),
        ({"machine": "my machine"}, "machine", "not one word"),
        ({"python": "bin/python"}, "python", "a relative path"),
        ({"python": "-c"}, "python", "a relative path"),
        ({"slurm": {"account": "a b"}}, "slurm.account", "not one word"),
        ({"slurm": {"account": "x" * 3001}}, "slurm.account", "too long"),
        ({"slurm": {"partition": "a\nb"}}, "slurm.partition", "it holds a line break"),
        ({"slurm": {"qos": "--x"}}, "slurm.qos", "not one word"),
        ({"slurm": {"reservation": 7}}, "slurm.reservation", "not text"),
        ({"slurm": {"exclusive": "yes"}}, "slurm.exclusive", "not true or false"),
        ({"slurm": {"gpu_request": "gpu-per-node"}}, "slurm.gpu_request", "gpus-per-node?"),
        ({"slurm": {"directives": "--mem=0"}}, "slurm.directives", "not a list"),
        ({"slurm": {"directives": [1]}}, "slurm.directives[0]", "not text"),
        ({"slurm": {"directives": ["--mem=0", "0"]}}, "slurm.directives[1]", "not an option"),
        ({"slurm": {"directives": ["--"]}}, "slurm.directives[0]", "not an option"),
        ({"slurm": {"directives": ["--mem 0"]}}, "slurm.directives[0]", "not an option"),
        ({"slurm": {"directives": ["-N2"]}}, "slurm.directives[0]", "long form"),
        ({"slurm": {"directives": ["--wrap=x\ny"]}}, "slurm.directives[0]", "a line break"),
        ({"slurm": {"directives": ["--qos=x"]}}, "slurm.directives[0]", "write it as slurm.qos"),
        ({"slurm": {"directives": ["--gres=gpu:1"]}}, "slurm.directives[0]", "slurm.gpu_request"),
        (
            {"slurm": {"directives": ["--gres=nvme:1,gpu:1"]}},
            "slurm.directives[0]",
            "slurm.gpu_request",
        ),
        (
            {"slurm": {"gpu_request": "gres", "directives": ["--gres=nvme:1"]}},
            "slurm.directives[0]",
            "slurm.gpu_request",
        ),
        ({"tasks": {"srun": ["--gpus=8"]}}, "tasks.srun[0]", "slurm.gpu_request"),
        ({"tasks": {"srun": ["--label"]}}, "tasks.srun[0]", "the log could not be read"),
        ({"tasks": {"cpus_per_task": 0}}, "tasks.cpus_per_task", "must be positive"),
        ({"tasks": {"cpus_per_task": 1.5}}, "tasks.cpus_per_task", "not a whole number"),
        ({"tasks": {"cpus_per_task": None}}, "tasks.cpus_per_task", "a value is needed"),
        ({"environment": {"modules": [""]}}, "environment.modules[0]", "empty"),
        ({"environment": {"modules": ["a b"]}}, "environment.modules[0]", "not one word"),
        ({"environment": {"variables": []}}, "environment.variables", "not a table ("),
        ({"environment": {"variables": {"A B": ""}}}, "environment.variables.A B", "not the name"),
        ({"environment": {"variables": {"A": 1}}}, "environment.variables.A", "not text"),
        ({"environment": {"variables": {"A": "\0"}}}, "environment.variables.A", "no file can"),
        ({"environment": {"variables": {"RANK": "0"}}}, "environment.variables.RANK", "autotune"),
        ({"environment": {"variables": {"UID": "0"}}}, "environment.variables.UID", "bash itself"),
        ({"environment": {"prologue": ["a"]}}, "environment.prologue", "not text"),
        ({"container": {"image": "/a.sif"}}, "container.runtime", "missing"),
        ({"container": {"runtime": "shifter"}}, "container.image", "missing"),
        (
            {"container": {"runtime": "docker", "image": "a"}},
            "container.runtime",
            "not one of them",
        ),
        (
            {"container": {"runtime": "apptainer", "image": "a.sif"}},
            "container.image",
            "a relative path",
        ),
        (
            {"container": {"runtime": "shifter", "image": "-a"}},
            "container.image",
            "not the name of an image",
        ),
        ({"trainer": {}}, "trainer.adapter", "missing"),
        ({"trainer": {"adapter": ""}}, "trainer.adapter", "empty"),
        ({"trainer": {"adapter": "a", "folder": "m"}}, "trainer.folder", "a relative path"),
        ({"trainer": {"adapter": "a", "set": 1}}, "trainer.set", "not a table"),
        ({"polling": {"interval_s": -1}}, "polling.interval_s", "must be positive"),
        ({"polling": {"interval_s": float("nan")}}, "polling.interval_s", "not a number"),
        ({"polling": {"command_limit_s": True}}, "polling.command_limit_s", "not a number"),
        ({"retries": {"attempts": 0}}, "retries.attempts", "must be positive"),
        ({"pilot": {"nodes": 0}}, "pilot.nodes", "must be positive"),
        ({"pilot": {"time_limit_h": 10**400}}, "pilot.time_limit_h", "not plausible"),
    ],
)
def test_what_will_not_do_is_refused_with_its_path(
    tables: dict[str, Any], field: str, reason: str
) -> None:
    problems = refused(**tables)
    assert field in problems
    assert reason in problems[field].reason
    assert problems[field].reason.endswith("(in mine.toml)")


def test_several_faults_are_reported_at_once() -> None:
    problems = refused(
        qos="debug", slurm={"acount": "x"}, tasks={"cpus_per_task": 0}, pilot={"nodes": "all"}
    )
    assert set(problems) == {"qos", "slurm.acount", "tasks.cpus_per_task", "pilot.nodes"}
    assert "account, partition" in problems["slurm.acount"].valid


def test_what_is_no_table_is_refused() -> None:
    listed: Any = ["name"]
    with pytest.raises(InvalidInputs, match="not a table"):
        profile_from_dict(listed, source="a request")


@pytest.mark.parametrize("python", ["", "python3.11", "/opt/my python/bin/python"])
def test_an_interpreter_is_a_command_a_path_or_left_open(python: str) -> None:
    assert read(python=python).python == python


def test_a_typed_gpu_is_requested_by_a_directive() -> None:
    slurm = {"gpu_request": "none", "directives": ["--gres=gpu:a100:8"]}
    assert read(slurm=slurm).slurm == Scheduling(
        gpu_request="none", directives=("--gres=gpu:a100:8",)
    )


def test_other_resources_are_requested_next_to_gpus() -> None:
    read_back = read(slurm={"directives": ["--gres=nvme:1,shard:2"]}).slurm
    assert (read_back.gpu_request, read_back.directives) == (
        "gpus-per-node",
        ("--gres=nvme:1,shard:2",),
    )


@pytest.mark.parametrize(
    "option",
    ["--nodes=2", "--job-name=a", "--wrap=x", "--no=4", "--parsable", "--time", "--exclude=n1",
     "--array=1-2", "--requeue", "--no-requeue", "--output=x", "--tim=1", "--test-only"],
)  # fmt: skip
def test_an_abbreviated_option_that_autotune_sets_is_refused(option: str) -> None:
    assert refused(slurm={"directives": [option]})["slurm.directives[0]"].value == option
    if option not in ("--array=1-2", "--wrap=x", "--parsable", "--requeue", "--no-requeue"):
        assert "tasks.srun[0]" in refused(tasks={"srun": [option]})


def test_options_of_the_site_are_taken() -> None:
    options = [
        "--mem=0",
        "--gres-flags=allow-task-sharing",
        "--wait-all-nodes=1",
        "--mail-user=a b",
    ]
    profile = read(
        slurm={"directives": options}, tasks={"srun": ["--cpu-bind=cores", "--mpi=none"]}
    )
    assert profile.slurm.directives == tuple(options)


def test_paths_and_words_are_completed_where_a_file_is_read() -> None:
    profile = read(
        HERE,
        python="~/bin/python",
        environment={"virtual_environment": "${SCRATCH}/venv"},
        container={"runtime": "apptainer", "image": "$SCRATCH/a.sif", "options": ["-B=$SCRATCH"]},
        trainer={"adapter": "a", "folder": "~", "set": {"--data": "/a/$$b~", "--c": ["$ODD", 1]}},
    )
    assert (profile.python, profile.environment.virtual_environment) == (
        "/home/me/bin/python",
        "/scratch/me/venv",
    )
    assert profile.container
    assert (profile.container.image, *profile.container.options) == (
        "/scratch/me/a.sif",
        "-B=/scratch/me",
    )
    assert profile.trainer
    assert profile.trainer.folder == "/home/me"
    assert profile.trainer.set == {"--data": "/a/$b~", "--c": ("a$b ~", 1)}
    again = profile_from_dict(profile_as_dict(profile), source="the store")
    assert again == profile


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("$NOWHERE/venv", "the variable NOWHERE is not set here"),
        ("/a/$ b", "a $ without a name"),
        ("~you/venv", "a relative path"),
        ("venv", "a relative path"),
    ],
)
def test_a_path_that_cannot_be_completed_is_refused(path: str, reason: str) -> None:
    environment = {"virtual_environment": path}
    problem = refused(HERE, environment=environment)["environment.virtual_environment"]
    assert reason in problem.reason
    assert problem.value == path


def test_a_variables_value_is_never_completed() -> None:
    variables = {"A": "$HOME/lib", "B": "${HOME}", "C": "5$", "D": "~"}
    problems = refused(HERE, environment={"variables": variables})
    assert set(problems) == {"environment.variables.A", "environment.variables.B"}
    assert problems["environment.variables.A"].valid == "export it in environment.prologue"
    environment = read(environment={"variables": variables}).environment
    assert environment == Environment(variables=variables)
