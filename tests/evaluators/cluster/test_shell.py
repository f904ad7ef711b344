"""What is rendered is run by a real bash, and what comes out of it is compared."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluators.cluster.profile import (
    ClusterProfile,
    Container,
    ContainerRuntime,
    Environment,
    GpuRequest,
    Scheduling,
    Tasks,
)
from evaluators.cluster.shell import (
    COMMON_VARIABLES,
    LONGEST_DIRECTIVE,
    SETUP_FAILED,
    container_words,
    directive_line,
    environment_lines,
    export_lines,
    sbatch_directives,
    sbatch_options,
    srun_words,
)
from tests.evaluators.cluster.texts import ANY_TEXT, VARIABLES

FOLDER = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=30)


def bash(lines: list[str], **environ: str) -> subprocess.CompletedProcess[bytes]:
    """The lines, and then the environment that they leave behind."""
    plain = {"PATH": os.environ["PATH"], **environ}
    return subprocess.run(
        ["bash"], input="\n".join([*lines, "env -0"]).encode(), env=plain, capture_output=True
    )


def environment_after(lines: list[str], **environ: str) -> Mapping[str, str]:
    done = bash(lines, **environ)
    assert done.returncode == 0, done.stderr
    pairs = (pair.split("=", 1) for pair in done.stdout.decode().split("\0") if "=" in pair)
    return dict(pairs)


def profile(**environment: object) -> ClusterProfile:
    return ClusterProfile(name="mine", environment=Environment(**environment))  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(VARIABLES)
def test_any_value_is_exported_as_it_stands(variables: Mapping[str, str]) -> None:
    after = environment_after(environment_lines(profile(variables=variables)))
    assert {name: after[name] for name in variables} == variables


def test_a_secret_is_read_where_the_job_runs(tmp_path: Path) -> None:
    key = tmp_path / "a key"
    key.write_text("s3cret $HOME '\n")
    variables = {"A": "env:TOKEN", "B": f"file:{key}", "C": "file:///data", "D": "env:not a name"}
    lines = environment_lines(profile(variables=variables))
    after = environment_after(lines, TOKEN="t0ken `id`")
    assert (after["A"], after["B"]) == ("t0ken `id`", "s3cret $HOME '")
    assert (after["C"], after["D"]) == ("file:///data", "env:not a name")


@pytest.mark.parametrize("reference", ["env:TOKEN", "file:/none/of it"])
def test_a_secret_that_is_not_there_ends_the_job_and_is_named(reference: str) -> None:
    done = bash(environment_lines(profile(variables={"KEY": reference})))
    assert done.returncode == SETUP_FAILED
    assert f"environment.variables.KEY: {reference} is not there" in done.stderr.decode()


@settings(max_examples=30, deadline=None)
@given(VARIABLES)
def test_exports_that_keep_yield_to_what_is_set(variables: Mapping[str, str]) -> None:
    lines = export_lines(variables, keep=True)
    after = environment_after(lines, **dict.fromkeys(variables, "mine"))
    assert all(after[name] == "mine" for name in variables)
    emptied = environment_after(lines, **dict.fromkeys(variables, ""))
    assert {name: emptied[name] for name in variables} == variables


def test_the_profiles_variables_win_and_the_common_ones_yield() -> None:
    lines = environment_lines(profile(variables={"NCCL_NET": "OFI", "OMP_NUM_THREADS": "7"}))
    after = environment_after(lines, NCCL_NET="Socket", CUDA_DEVICE_MAX_CONNECTIONS="32")
    assert after["NCCL_NET"] == "OFI"
    common = {name: after[name] for name in COMMON_VARIABLES}
    assert common == {
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
        "OMP_NUM_THREADS": "7",
        "PYTHONUNBUFFERED": "1",
    }


def test_an_environment_is_set_up_in_its_order(tmp_path: Path) -> None:
    modules = site_with_modules(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/activate").write_text('export ORDER="$ORDER venv"\n')
    prologue = 'export ORDER="$ORDER $FROM_PROFILE prologue"\nexport OMP_NUM_THREADS=3\n'
    lines = environment_lines(
        profile(
            modules=("cuda/12", "nccl;x"),
            virtual_environment=str(tmp_path),
            variables={"FROM_PROFILE": "variables"},
            prologue=prologue,
        )
    )
    after = environment_after(lines, MODULESHOME=str(modules), LMOD_PKG="/nowhere")
    assert after["ORDER"] == " load:cuda/12 load:nccl;x venv variables prologue"
    assert after["OMP_NUM_THREADS"] == "3"


def site_with_modules(folder: Path) -> Path:
    """A site's own definition of `module`, as Environment Modules installs it."""
    home = folder / "modules"
    (home / "init").mkdir(parents=True)
    (home / "init/bash").write_text(
        'module() { [[ $2 != missing ]] && export ORDER="$ORDER $1:$2"; }\n'
    )
    return home


def test_a_module_command_that_is_there_is_used(tmp_path: Path) -> None:
    lines = ['module() { export ORDER="here $2"; }', *environment_lines(profile(modules=("a",)))]
    after = environment_after(lines, MODULESHOME=str(site_with_modules(tmp_path)))
    assert after["ORDER"] == "here a"


@pytest.mark.parametrize("folder", ["", "/nowhere/at all"])
def test_a_module_that_does_not_load_ends_the_job(tmp_path: Path, folder: str) -> None:
    modules = folder or str(site_with_modules(tmp_path))
    done = bash(environment_lines(profile(modules=("missing",))), MODULESHOME=modules)
    assert done.returncode == SETUP_FAILED
    assert (
        b"autotune: the cluster profile's environment.modules: missing does not lo" in done.stderr
    )


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(FOLDER.filter(lambda name: name not in (".", "..") and len(name.encode()) < 200))
def test_a_virtual_environment_may_lie_anywhere(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "bin/activate").write_text("export ACTIVE=1\n")
    lines = environment_lines(profile(virtual_environment=str(folder)))
    assert environment_after(lines)["ACTIVE"] == "1"
    (folder / "bin/activate").unlink()
    done = bash(lines)
    assert done.returncode == SETUP_FAILED
    assert f"environment.virtual_environment: none is at {folder}\n".encode() in done.stderr


@pytest.mark.parametrize("prologue", ["echo 'open", "if true; then", "cat <(", "x=$(", "((", "}"])
def test_a_prologue_that_is_not_bash_ends_the_job(prologue: str) -> None:
    done = bash(environment_lines(profile(prologue=prologue)))
    assert done.returncode == SETUP_FAILED
    assert (
        b"autotune: the cluster profile's environment.prologue: this is not bash\n" in done.stderr
    )
    assert b"PATH=" not in done.stdout


def test_a_prologue_is_bash_and_its_last_status_does_not_matter() -> None:
    prologue = (
        "shopt -s extglob\nx=aab; export Y=${x##+(a)}\ncat <<END\nit's $Y\nEND\n[[ -f /x ]] && cd /"
    )
    lines = environment_lines(profile(prologue=prologue))
    assert environment_after(lines)["Y"] == "b"
    assert environment_lines(profile(prologue=" \n")) == environment_lines(profile())


@pytest.mark.parametrize("option", ["--a\nb", "--a\0", "--a\rb", "-" * (LONGEST_DIRECTIVE + 1)])
def test_what_no_directive_can_hold_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match="not to be written as a #SBATCH line"):
        directive_line(option)


@pytest.mark.parametrize(
    ("request_", "words"),
    [("gpus-per-node", ["--gpus-per-node=8"]), ("gres", ["--gres=gpu:8"]), ("none", [])],
)
def test_gpus_are_requested_as_the_site_wants(request_: GpuRequest, words: list[str]) -> None:
    asking = ClusterProfile(name="mine", slurm=Scheduling(gpu_request=request_))
    for options in (
        sbatch_options(asking, nodes=2, gpus_per_node=8),
        srun_words(asking, gpus_per_node=8),
    ):
        assert [word for word in options if "gpu" in word] == words
        assert "--ntasks-per-node=8" in options
        assert not any(word.startswith("--cpus-per-task") for word in options)


def test_all_that_a_profile_asks_of_sbatch() -> None:
    slurm = Scheduling(
        account="abc",
        partition="batch,long",
        qos="debug",
        reservation="r",
        constraint="gpu&hbm80g",
        directives=("--mail-user=a b",),
    )
    asking = ClusterProfile(name="mine", slurm=slurm, tasks=Tasks(cpus_per_task=7, srun=("--x",)))
    assert sbatch_directives(asking, nodes=16, gpus_per_node=4) == [
        "#SBATCH --account=abc",
        "#SBATCH --partition=batch,long",
        "#SBATCH --qos=debug",
        "#SBATCH --reservation=r",
        "#SBATCH --constraint=gpu&hbm80g",
        "#SBATCH --nodes=16",
        "#SBATCH --ntasks-per-node=4",
        "#SBATCH --gpus-per-node=4",
        "#SBATCH --cpus-per-task=7",
        "#SBATCH --exclusive",
        "#SBATCH --mem=0",
        '#SBATCH "--mail-user=a b"',
    ]
    assert srun_words(asking, gpus_per_node=4) == (
        "--ntasks-per-node=4",
        "--gpus-per-node=4",
        "--cpus-per-task=7",
        "--export=ALL",
        "--kill-on-bad-exit=1",
        "--wait=0",
        "--x",
    )


def test_sbatch_gets_nothing_that_the_profile_leaves_open() -> None:
    shared = ClusterProfile(name="mine", slurm=Scheduling(exclusive=False, gpu_request="none"))
    assert sbatch_options(shared, nodes=1, gpus_per_node=4) == ("--nodes=1", "--ntasks-per-node=4")


@pytest.mark.parametrize(
    ("exclusive", "directives", "memory_options"),
    [
        (True, (), ["--mem=0"]),
        (True, ("--mem-bind=local",), ["--mem-bind=local", "--mem=0"]),
        (True, ("--mem=64G",), ["--mem=64G"]),
        (True, ("--mem-per-cpu=2G",), ["--mem-per-cpu=2G"]),
        (True, ("--mem-per-gpu=90G",), ["--mem-per-gpu=90G"]),
        (False, (), []),
    ],
)
def test_whole_nodes_are_requested_with_all_their_memory(
    exclusive: bool, directives: tuple[str, ...], memory_options: list[str]
) -> None:
    slurm = Scheduling(exclusive=exclusive, directives=directives)
    options = sbatch_options(ClusterProfile(name="mine", slurm=slurm), nodes=1, gpus_per_node=8)
    assert sorted(option for option in options if option.startswith("--mem")) == memory_options


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        ("apptainer", ["apptainer", "exec", "--nv", "an image"]),
        ("singularity", ["singularity", "exec", "--nv", "an image"]),
        ("shifter", ["shifter", "--image=an image", "--nv"]),
    ],
)
def test_a_container_starts_the_command(runtime: ContainerRuntime, words: list[str]) -> None:
    container = Container(runtime=runtime, image="an image", options=("--nv",))
    assert container_words(ClusterProfile(name="mine", container=container)) == tuple(words)


def test_podman_hands_on_the_variables() -> None:
    container = Container(runtime="podman-hpc", image="me/training", options=("--gpu",))
    environment = Environment(variables={"MINE": "1", "OMP_NUM_THREADS": "7"})
    words = container_words(
        ClusterProfile(name="mine", container=container, environment=environment)
    )
    assert words[:3] == ("podman-hpc", "run", "--rm")
    assert words[-2:] == ("--gpu", "me/training")
    assert {"--env=SLURM_*", "--env=MASTER_*", "--env=MINE", "--env=PYTHONUNBUFFERED"} < {*words}
    assert words.count("--env=OMP_NUM_THREADS") == 1


def test_without_a_container_there_are_no_words() -> None:
    assert container_words(ClusterProfile(name="mine")) == ()


@settings(max_examples=30, deadline=None)
@given(st.lists(ANY_TEXT, max_size=3), ANY_TEXT)
def test_the_words_survive_a_shell(options: list[str], image: str) -> None:
    container = Container(runtime="apptainer", image=image, options=tuple(options))
    words = container_words(ClusterProfile(name="mine", container=container))
    script = f"printf '%s\\0' {shlex.join(words)}"
    printed = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout
    assert printed.decode().split("\0")[:-1] == [*words]
