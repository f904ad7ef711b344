"""The page on profiles is true: its examples run, its tables are the code's."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from evaluators.cluster import ClusterProfile, profile_names, read_profile
from evaluators.cluster.catalog import SECTIONS
from evaluators.cluster.shell import COMMON_VARIABLES, SETUP_FAILED

PAGE = (Path(__file__).parents[3] / "docs" / "profile-file.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def rows(heading: str) -> dict[str, str]:
    """Key -> default, as the table under a heading shows them."""
    section = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    (text,) = (part for part in section if part.startswith(heading))
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", text, flags=re.MULTILINE))


def test_the_tables_list_every_key() -> None:
    keys = [field.name for field in fields(ClusterProfile) if field.name != "adapter"]
    assert keys == [*rows("The profile itself"), *SECTIONS]
    for name, section in SECTIONS.items():
        assert [*rows(f"`[{name}]`")] == [field.name for field in fields(section)], name


@pytest.mark.parametrize("name", SECTIONS)
def test_the_tables_show_the_defaults(name: str) -> None:
    shown = rows(f"`[{name}]`")
    for field in fields(SECTIONS[name]):
        if field.default is MISSING and field.default_factory is MISSING:
            assert shown[field.name] == "required"
        elif isinstance(field.default, bool):
            assert shown[field.name] == str(field.default).lower()
        elif isinstance(field.default, int | float):
            assert float(shown[field.name]) == field.default
        elif field.default and isinstance(field.default, str):
            assert field.default in shown[field.name]


def test_the_full_example_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    example, _ = blocks("toml")
    (tmp_path / "example.toml").write_text(example)
    profile = read_profile(tmp_path / "example.toml")
    assert profile.adapter
    assert profile.adapter.folder == "/home/me/Megatron-DeepSpeed"
    assert profile.pilot.time_limit_h == 6


def test_the_calls_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".config/autotune/profiles"
    folder.mkdir(parents=True)
    for place in (folder, tmp_path):
        (place / "mine.toml").write_text('[slurm]\naccount = "abc123"\n')
    (example,) = blocks("python")
    names: dict[str, object] = {}
    exec(compile(example, "docs/profile-file.md", "exec"), names)
    assert isinstance(names["profile"], ClusterProfile)
    assert names["profile"].slurm.account == "abc123"


@pytest.mark.parametrize("name", [*profile_names(), *COMMON_VARIABLES])
def test_every_name_is_mentioned(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_the_exit_code_and_the_refusal_are_the_real_ones() -> None:
    assert f"code {SETUP_FAILED}" in PAGE
    assert "slurm.acount: unknown; did you mean account?" in PAGE  # as test_reading has it
