from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from evaluators.cluster.profile import ClusterProfile, Container, Environment
from evaluators.program import interpreter
from evaluators.program.interpreter import import_path, named_python, packages_fault, python


@pytest.mark.parametrize(
    ("profile", "named"),
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
    profile: ClusterProfile, named: str
) -> None:
    assert python(profile) == named


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


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("", "there is no such interpreter"),
        ("exit 3", "it cannot be asked for its packages: .* exit status 3"),
        ("echo a banner", "it cannot be asked for its packages: "),
        ("echo a banner; echo '[]'", "$"),
        (f'exec {sys.executable} "$@"', "it has no of_nowhere$"),
    ],
)
def test_an_interpreter_says_what_it_lacks(script: str, fault: str, tmp_path: Path) -> None:
    own = tmp_path / "python"
    if script:
        own.write_text(f"#!/bin/bash\n{script}\n")
        own.chmod(0o755)
    assert re.match(fault, packages_fault(str(own), ["json", "of_nowhere"]))


def test_an_interpreter_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "TIME_LIMIT_S", 0.2)
    own = tmp_path / "python"
    own.write_text("#!/bin/bash\nexec sleep 1000\n")
    own.chmod(0o755)
    assert packages_fault(str(own), ["json"]).startswith("it did not answer within ")
