from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from evaluators.cluster.profile import ClusterProfile, Container, Environment
from evaluators.program.interpreter import import_path, named_python, python


@pytest.mark.parametrize(
    ("profile", "interpreter"),
    [
        (ClusterProfile(name="own"), sys.executable),
        (ClusterProfile(name="named", python="/opt/py/bin/python"), "/opt/py/bin/python"),
        (
            ClusterProfile(name="venv", environment=Environment(virtual_environment="/venv")),
            "python3",
        ),
        (ClusterProfile(name="module", environment=Environment(modules=("torch",))), "python3"),
        (
            ClusterProfile(name="box", container=Container(runtime="apptainer", image="a.sif")),
            "python3",
        ),
        (
            ClusterProfile(
                name="both", python="python3.11", environment=Environment(modules=("torch",))
            ),
            "python3.11",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, ClusterProfile) else "",
)
def test_the_interpreter_is_the_jobs_own_where_it_has_one(
    profile: ClusterProfile, interpreter: str
) -> None:
    assert python(profile) == interpreter


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["/env/bin/python3.12", "train.py"], "/env/bin/python3.12"),
        (["env/bin/python", "-m", "train"], "/mine/env/bin/python"),
        (["sh", "-c", 'exec "$@"', "sh", "/env/bin/python", "train.py"], "/env/bin/python"),
        (["torchrun", "train.py"], None),
        (["python", "train.py"], None),
    ],
)
def test_the_interpreter_that_a_command_names(words: list[str], named: str | None) -> None:
    assert named_python(words, folder="/mine") == named


def test_the_services_interpreter_finds_this_package_anywhere(tmp_path: Path) -> None:
    lines = [*import_path(ClusterProfile(name="own")), f"{sys.executable} -c 'import evaluators'"]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], cwd=tmp_path, env={}, check=False)
    assert done.returncode == 0


def test_no_other_interpreter_is_given_this_services_libraries() -> None:
    assert import_path(ClusterProfile(name="named", python="python3")) == []
