"""The page on models is true: its examples run, its tables are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from search_spaces.catalog import machine_names, model_names, read_machine, read_model, space_names
from search_spaces.dimensions import DIMENSIONS

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("example", blocks("python"))
def test_examples_run(example: str) -> None:
    exec(compile(example, "docs/models.md", "exec"), {})


def test_example_files_are_read(tmp_path: Path) -> None:
    model, machine = blocks("toml")
    (tmp_path / "model.toml").write_text(model)
    (tmp_path / "machine.toml").write_text(machine)
    assert read_model(tmp_path / "model.toml").parameters == 7_241_732_096  # Mistral 7B
    assert read_machine(tmp_path / "machine.toml").gpu_max_watt == 700


def test_the_table_of_dimensions_is_the_code_s() -> None:
    table = PAGE.split("| dimension |")[1].split("\n\n")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)) == DIMENSIONS


@pytest.mark.parametrize("name", [*machine_names(), *space_names()])
def test_every_name_is_mentioned(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_every_family_of_models_is_mentioned() -> None:
    families = {name.rsplit("-", 1)[0] for name in model_names()}
    assert all(family in PAGE for family in families)
