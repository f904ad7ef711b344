"""The trial program as a process of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from evaluators.trainer.__main__ import main, parser, read_request
from evaluators.trial import read_result, request_as_dict, request_from_dict
from search_spaces.catalog import load_model
from tests.evaluators.local.trials import request, strategy
from tests.patience import PATIENCE_S
from tests.requirement import require

ENVIRONMENT = os.environ | {"CUDA_VISIBLE_DEVICES": ""}


def command(*arguments: object) -> list[str]:
    require(find_spec("torch") and find_spec("deepspeed"), "torch and deepspeed")
    return [sys.executable, "-m", "evaluators.trainer", *map(str, arguments)]


@pytest.mark.parametrize("name", ["tiny", "deepseek-v3", "nemotron-3-nano-30b-a3b"])
def test_a_request_survives_the_file(tmp_path: Path, name: str) -> None:
    tiny = request(tmp_path, strategy(2, 2), ranks=4, accumulations=(2, 4))
    trial = replace(tiny, transformer=load_model(name))
    assert request_from_dict(json.loads(json.dumps(request_as_dict(trial)))) == trial


def test_options_change_a_request(tmp_path: Path) -> None:
    """That one command runs it, on all its ranks, is shown by the script for this machine."""
    written = request_as_dict(request(tmp_path / "elsewhere", strategy(2), ranks=2))
    del written["directory"]
    file = tmp_path / "trial.json"
    file.write_text(json.dumps(written))
    words = ["--request", str(file), "--iterations", "5", "--accumulations", "2", "4"]
    trial = read_request(parser().parse_args(words))
    assert trial.directory == tmp_path
    assert (trial.protocol.measured_iterations, trial.protocol.accumulations) == (5, (2, 4))


def test_ranks_that_something_else_started_find_one_another(tmp_path: Path) -> None:
    file = tmp_path / "trial.json"
    file.write_text(json.dumps(request_as_dict(request(tmp_path, strategy(1, 2), ranks=2))))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared["GLOO_SOCKET_IFNAME"] = "lo"
    ranks = [
        subprocess.Popen(
            command("--request", file),
            env=ENVIRONMENT | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
        )
        for rank in range(2)
    ]
    assert [rank.wait(PATIENCE_S) for rank in ranks] == [0, 0]
    outcome = read_result(tmp_path)
    assert outcome
    assert outcome.status is TrialState.OK
    assert len(outcome.peak_memory_gib) == 2


def test_a_file_that_is_no_request_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trial.json"
    file.write_text("{}")
    assert main(["--request", str(file)]) == 2
    assert "no trial request" in capsys.readouterr().err
