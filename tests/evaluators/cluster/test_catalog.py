from __future__ import annotations

from pathlib import Path

import pytest

from evaluators.adapter.catalog import load_adapter
from evaluators.cluster import (
    load_profile,
    profile_as_dict,
    profile_file,
    profile_for_machine,
    profile_from_dict,
    profile_names,
    read_profile,
)
from evaluators.cluster.profile import ClusterProfile
from evaluators.cluster.shell import environment_lines, sbatch_directives, srun_words
from search_spaces.catalog import load_machine, machine_names
from search_spaces.errors import InvalidInput, InvalidInputs

READY = profile_names()


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def test_the_bundled_profiles_are_there() -> None:
    assert {"frontier", "perlmutter", "lumi-g", "polaris", "generic"} <= set(READY)


@pytest.mark.parametrize("name", READY)
def test_a_ready_profile_is_complete_and_belongs_to_its_machine(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert profile.description
    assert profile.slurm.account == ""
    assert profile.machine in ("", *machine_names())
    assert profile_from_dict(profile_as_dict(profile), source="the store") == profile
    assert environment_lines(profile)
    assert sbatch_directives(profile, nodes=1, gpus_per_node=4)


def test_the_generic_profile_shows_the_defaults() -> None:
    generic = load_profile("generic")
    assert generic == ClusterProfile(name="generic", description=generic.description)


@pytest.mark.parametrize("name", ["frontier", "lumi-g", "perlmutter"])
def test_the_cores_of_a_node_are_shared_by_its_gpus(name: str) -> None:
    cores = {"frontier": 56, "lumi-g": 56, "perlmutter": 128}
    profile = load_profile(name)
    assert profile.tasks.cpus_per_task
    assert profile.tasks.cpus_per_task * load_machine(name).gpus_per_node == cores[name]


def test_slingshot_with_rccl() -> None:
    for name in ("frontier", "lumi-g"):
        variables = load_profile(name).environment.variables
        assert variables["NCCL_NET_GDR_LEVEL"] == "3"
        assert variables["FI_MR_CACHE_MONITOR"] == "userfaultfd"


def test_a_machine_finds_its_profile() -> None:
    frontier = profile_for_machine("frontier")
    assert frontier == load_profile("frontier")
    assert "--gpu-bind=closest" in srun_words(load_profile("frontier"), gpus_per_node=8)
    for name in ("polaris", "aurora", "summit"):
        profile = profile_for_machine(name)
        assert profile
        assert "in Slurm's words" in profile.description
    assert profile_for_machine("dgx-h100") is None
    assert profile_for_machine("") is None


def test_an_unknown_name_is_refused_with_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, "mine", "")
    with pytest.raises(InvalidInput, match="did you mean frontier") as refusal:
        load_profile("fronteer", folder=tmp_path)
    assert refusal.value.field == "profile"
    assert "mine" in refusal.value.valid


@pytest.mark.parametrize("name", ["../profiles/frontier", "/etc/passwd", "frontier.toml", ""])
def test_text_is_a_name_and_never_a_path(name: str) -> None:
    with pytest.raises(InvalidInput, match="no such profile"):
        load_profile(name)


def test_a_users_profile_is_found_first(tmp_path: Path) -> None:
    write(tmp_path, "frontier", '[slurm]\naccount = "abc123"\n')
    write(tmp_path, "mine", 'name = "ours"\n')
    assert load_profile("frontier", folder=tmp_path).slurm.account == "abc123"
    assert load_profile("mine", folder=tmp_path).name == "ours"
    assert load_profile("generic", folder=tmp_path) == load_profile("generic")
    assert profile_file("frontier", folder=tmp_path) == tmp_path / "frontier.toml"
    assert profile_file("generic", folder=tmp_path).parent != tmp_path
    assert profile_names(tmp_path) == sorted({*READY, "mine"})


def test_a_folder_that_is_not_there_holds_none(tmp_path: Path) -> None:
    assert profile_names(tmp_path / "nowhere") == READY
    assert load_profile("generic", folder=tmp_path / "nowhere")


def test_a_path_is_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, "my site", "[tasks]\ncpus_per_task = 3\n")
    assert load_profile(path) == read_profile(path)
    assert (read_profile(path).name, read_profile(path).tasks.cpus_per_task) == ("my site", 3)


def test_what_a_file_names_is_looked_up_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("NOWHERE", raising=False)
    path = write(tmp_path, "mine", '[environment]\nvirtual_environment = "~/venv"\n')
    assert read_profile(path).environment.virtual_environment == "/home/me/venv"
    write(tmp_path, "mine", '[environment]\nvirtual_environment = "$NOWHERE/venv"\n')
    with pytest.raises(InvalidInputs, match="NOWHERE is not set here"):
        read_profile(path)


def test_a_file_that_cannot_be_read_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        read_profile(tmp_path / "nowhere.toml")
    path = write(tmp_path, "mine", '[slurm]\naccount = "a\n')
    with pytest.raises(InvalidInput, match=r"not TOML: .* \(at line 2, column 13\)") as refusal:
        read_profile(path)
    assert refusal.value.value == str(path)


def test_a_refused_key_names_its_file(tmp_path: Path) -> None:
    path = write(tmp_path, "mine", '[slurm]\nacount = "a"\n')
    with pytest.raises(InvalidInputs) as refusal:
        load_profile("mine", folder=tmp_path)
    (problem,) = refusal.value.problems
    assert problem.field == "slurm.acount"
    assert problem.reason == f"unknown; did you mean account? (in {path})"


def test_a_prologue_that_is_not_bash_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "mine", "[environment]\nprologue = 'export A=1\nif true; then'\n")
    path.write_text("[environment]\nprologue = '''\nexport A=1\nif true; then\n'''\n")
    with pytest.raises(InvalidInput, match="not bash: line 3: syntax error") as refusal:
        read_profile(path)
    assert refusal.value.field == "environment.prologue"
    monkeypatch.setenv("PATH", str(tmp_path))  # no bash here: the job itself checks it then
    assert read_profile(path).environment.prologue.startswith("export A=1")


OWN = 'command = ["train"]\n[set]\n"--size" = 1\n[[read]]\nlog = "(?P<iteration_time_s>x)"\n'
TRAINER = '[trainer]\nadapter = "./own.toml"\nfolder = "/checkout"\n'


def test_a_profile_chooses_a_trainer(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    more = '[trainer.set]\n"--size" = 2\n"--tp" = "{tensor_parallel}"\n'
    adapter = read_profile(write(tmp_path, "mine", TRAINER + more)).adapter
    assert adapter
    assert (adapter.name, adapter.folder) == ("own", "/checkout")
    assert adapter.places == {"--size": 2, "--tp": "{tensor_parallel}"}
    assert "tensor_parallel" in adapter.varied
    ready = write(tmp_path, "mine", '[trainer]\nadapter = "megatron-lm"\n')
    assert read_profile(ready).adapter == load_adapter("megatron-lm")


@pytest.mark.parametrize(
    ("text", "field", "reason"),
    [
        ('[trainer]\nadapter = "megatron"\n', "trainer.adapter", "did you mean megatron-lm"),
        ('[trainer]\nadapter = "./no.toml"\n', "trainer.adapter", "cannot be read"),
        (f'{TRAINER}[trainer.set]\n"--a" = "{{tp}}"\n', "trainer.set.--a", "unknown name tp"),
        ('adapter = "megatron-lm"\n', "adapter", "did you mean trainer.adapter"),
    ],
)
def test_a_wrong_trainer_is_refused(tmp_path: Path, text: str, field: str, reason: str) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    with pytest.raises((InvalidInput, InvalidInputs), match=reason) as refused:
        read_profile(write(tmp_path, "mine", text))
    problems = getattr(refused.value, "problems", [refused.value])
    assert [problem.field for problem in problems] == [field]
