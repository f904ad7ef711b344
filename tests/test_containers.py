"""The files of docker/: what they say is known to the program, and to each other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from server.cli.application import app
from server.settings import Settings

FOLDER = Path(__file__).parents[1] / "docker"
FILES = sorted(path for path in FOLDER.iterdir() if path.is_file())
COMPOSED: list[dict[str, Any]] = [
    yaml.safe_load((FOLDER / name).read_text()) for name in ("compose.yaml", "compose.slurm.yaml")
]
SERVICES = [service for file in COMPOSED for service in file["services"].values()]
DIGEST = r"@sha256:[0-9a-f]{64}"
OF_CLIENTS = {"AUTOTUNE_URL", "AUTOTUNE_TOKEN_FILE"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_variable_is_a_setting(path: Path) -> None:
    known = {f"AUTOTUNE_{field.upper()}" for field in Settings.model_fields}
    assert set(re.findall(r"AUTOTUNE_[A-Z_]+", path.read_text())) <= known | OF_CLIENTS


def test_every_command_is_one() -> None:
    top: Any = get_command(app)
    typed = [service.get("command", ["serve"]) for service in SERVICES]
    typed += [
        service["healthcheck"]["test"][1:]
        for service in SERVICES
        if "test" in service.get("healthcheck", {})
    ]
    typed = [[word for word in words if word != "autotune"] for words in typed]
    ours = [words for words in typed if words[0] in top.commands]
    assert {tuple(words) for words in ours} >= {("serve", "--no-runner"), ("runner",)}
    for name, *options in ours:
        flags = {flag for each in top.commands[name].loaded.params for flag in each.opts}
        assert set(options) <= flags


def test_no_container_is_root_unpinned_or_holds_a_secret() -> None:
    file = COMPOSED[0]
    for name, service in file["services"].items():
        assert set(service["secrets"]) <= set(file["secrets"])
        assert service["init"]
        assert "healthcheck" in service
        assert not re.search(r"://\w+:", str(service["environment"])), "a password in an URL"
        assert re.search(rf":[\d.]+-\w+{DIGEST}$", service["image"]) or "build" in service, name
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["read_only"]
    recipe = (FOLDER / "Dockerfile").read_text()
    assert re.search(rf"^ARG BASE=\S+:\w+-\d{{8}}-slim{DIGEST}$", recipe, re.MULTILINE)
    stages = re.split(r"^FROM ", recipe, flags=re.MULTILINE)
    for stage in stages:
        if "ENTRYPOINT" in stage:
            assert re.findall(r"^USER (\w+)", stage, re.MULTILINE)[-1] == "autotune"
    targets = set(re.findall(r"^FROM \S+ AS (\w+)", recipe, re.MULTILINE))
    wanted = {service["build"]["target"] for service in SERVICES if "build" in service}
    assert wanted <= targets


def test_what_is_copied_into_an_image_is_let_through() -> None:
    let = {
        line[1:]
        for line in (FOLDER.parent / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    recipe = (FOLDER / "Dockerfile").read_text()
    named = re.findall(r"^COPY (?!--from)(.*) \S+$", recipe, re.MULTILINE)
    files = {word for line in named for word in line.split() if word != "."}
    assert files <= let
    assert all((FOLDER.parent / name).exists() for name in let)
