"""`autotune diagnose`: without a service, from a file."""

from __future__ import annotations

import subprocess
from pathlib import Path

from server.cli.failures import ExitCode
from tests.evaluators.run_log.logs import bundled, megatron, written
from tests.patience import until
from tests.server.cli.conftest import Autotune
from tests.serving import COMMAND

LAYOUT = ("--nodes", "8", "--baseline", "tp=2,mbs=1,gbs=512,zero=1,sp=on,checkpointing=none")
STATED = ("--model", "llama-3-8b", "--machine", "dgx-h100", *LAYOUT)


def test_a_slow_run_is_explained(alone: Autotune, tmp_path: Path) -> None:
    log = written(tmp_path, megatron([45.0] * 20, changed={"bf16": False}))
    ran = alone("diagnose", str(log))
    assert ran.code == ExitCode.FAILED
    assert "Largest cause: fp32" in ran.out
    words = " ".join(ran.out.split())
    assert "neither bf16 nor fp16 is on" in words
    assert "autotune submit --model llama-3-8b" in words


def test_a_healthy_run_is_called_so(alone: Autotune, tmp_path: Path) -> None:
    ran = alone("diagnose", str(written(tmp_path, bundled([6.0] * 20))), *STATED)
    assert ran.code == ExitCode.OK
    assert "The run is healthy." in ran.out


def test_a_launch_script_and_json(alone: Autotune, tmp_path: Path) -> None:
    script = written(tmp_path, "export TP=2 MBS=1 GBS=512\nnum_nodes: 8\n", "config.sh")
    log = written(tmp_path, bundled([6.0] * 20))
    answer = alone("diagnose", str(log), str(script), *STATED[:4], "--json").json()
    assert answer["strategy"]["tensor_parallel"] == 2
    assert answer["gpus"] == 64
    assert answer["missing"] == []


def test_a_log_is_read_from_standard_input(alone: Autotune) -> None:
    ran = alone("diagnose", "-", *STATED, typed=bundled([6.0] * 20))
    assert ran.code == ExitCode.OK
    assert "The run is healthy." in ran.out
    for words, part in (((), "got 'standard input'"), (("--follow",), "only a file")):
        refused = alone("diagnose", "-", *words, typed="hello\n")
        assert refused.code == ExitCode.BAD_INPUT
        assert part in refused.err


def test_bad_input_is_one_sentence(alone: Autotune, tmp_path: Path) -> None:
    log = written(tmp_path, "hello\n")
    for words in ((str(log),), (str(tmp_path / "none.log"),), (str(tmp_path), "--follow")):
        ran = alone("diagnose", *words)
        assert ran.code == ExitCode.BAD_INPUT
        assert len(ran.err.strip().splitlines()) == 1, ran.err


def test_a_growing_log_is_followed(tmp_path: Path) -> None:
    log = written(tmp_path, bundled([6.0] * 20))
    shown = tmp_path / "shown"
    with shown.open("w") as out:
        process = subprocess.Popen(
            [*COMMAND, "diagnose", str(log), "--follow", *STATED],
            stdout=out,
            stderr=subprocess.DEVNULL,
        )
        try:
            until(lambda: "The run is healthy." in shown.read_text())
            log.write_text(bundled([*([6.0] * 20), *([9.0] * 12)]))
            until(lambda: "the rate falls" in shown.read_text())
        finally:
            process.terminate()
            process.wait()
    assert "iteration 32: 9 s (slow)" in shown.read_text()
