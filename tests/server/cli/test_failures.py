"""Bad input: one clear sentence, an exit code that is not 0, nothing half-written."""

from __future__ import annotations

import resource
import shutil
import socket
import subprocess
from functools import partial
from pathlib import Path

import pytest

from autotune.schemas.wire import Problem
from server.cli.failures import ExitCode, explained
from tests.patience import PATIENCE_S
from tests.requirement import require
from tests.server.cli.conftest import Autotune, Ran
from tests.serving import COMMAND, Served, environment

FRONTIER = ("--machine", "frontier", "--nodes", "2")
MACHINE_FILE = """
gpu = "MI250X GCD"
gpus_per_node = 8
max_nodes = 100
memory_gib = 65536
memory_bandwidth_gb_per_s = 1600
intra_node_gb_per_s = 50
inter_node_gb_per_s = 12.5
"""


def sentences(ran: Ran) -> list[str]:
    """The lines on stderr; nothing may stand on stdout, nor a traceback anywhere."""
    assert ran.code != 0
    assert ran.out == ""
    assert "Traceback" not in ran.err
    return ran.err.strip().splitlines()


REFUSED: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "a model": (("--model", "gpt-22c", *FRONTIER), ["--model: no such model", "gpt-22b"]),
    "a number": (
        ("--model", "tiny", "--machine", "frontier", "--nodes", "0"),
        ["--nodes: ", "got 0"],
    ),
    "a number of the budget": (
        ("--model", "gpt-22b", *FRONTIER, "--max-trials", "0"),
        ["--max-trials: ", "got 0"],
    ),
    "a time that has passed": (
        ("--model", "gpt-22b", *FRONTIER, "--deadline", "2001-01-01T00:00"),
        ["--deadline: this deadline has passed"],
    ),
    "no time": (
        ("--model", "gpt-22b", *FRONTIER, "--deadline", "soon"),
        ["--deadline: not a time in ISO 8601 (got 'soon'"],
    ),
    "more nodes than there are": (
        ("--model", "gpt-22b", *FRONTIER, "--num-nodes", "9"),
        ["--num-nodes: only 2 nodes may be used (--nodes=2) (got 9", "raise --nodes to 9"],
    ),
    "an iteration that is no number": (
        ("--model", "gpt-22b", *FRONTIER, "--protocol", "measured_iterations=x"),
        ["--protocol: measured_iterations: "],
    ),
    "no protocol": (
        ("--model", "gpt-22b", *FRONTIER, "--protocol", "3"),
        ["--protocol: no name with a value, each once (got '3'; valid: confirmations=0"],
    ),
    "a screen of nothing": (
        ("--model", "gpt-22b", *FRONTIER, "--screen", "some"),
        ["--screen: no way to screen (got 'some'; valid: auto, off, a number of nodes, or layers="],
    ),
    "slurm without a profile": (
        ("--model", "gpt-22b", *FRONTIER, "--evaluator", "pilot"),
        ["--profile: the slurm evaluator needs a cluster profile", "frontier or generic"],
    ),
    "a profile for any machine": (
        ("--model", "gpt-22b", "--profile", "generic"),
        ["--machine: the profile 'generic' is for any machine", "autotune machines"],
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_submit_refuses(autotune: Autotune, kind: str) -> None:
    arguments, parts = REFUSED[kind]
    ran = autotune("submit", *arguments)
    assert ran.code == ExitCode.BAD_INPUT
    [sentence] = sentences(ran)
    assert sentence.startswith("error: ")
    for part in parts:
        assert part in sentence


@pytest.mark.parametrize(
    ("words", "code", "status", "field"),
    [
        (("submit", "--model", "gpt-22c", *FRONTIER), ExitCode.BAD_INPUT, 422, "model"),
        (("show", "10000"), ExitCode.BAD_INPUT, 404, "campaign"),
        (("show", "1", "--log", "5"), ExitCode.BAD_INPUT, 422, "log"),
        (("show",), ExitCode.BAD_INPUT, 422, None),
        (("ls", "--limit", "0"), ExitCode.BAD_INPUT, 422, None),
        (("ls", "--url", "http://127.0.0.1:9"), ExitCode.UNREACHABLE, 503, None),
    ],
)
def test_with_json_an_error_is_one_problem_document(
    autotune: Autotune, words: tuple[str, ...], code: ExitCode, status: int, field: str | None
) -> None:
    ran = autotune(*words, "--json")
    assert (ran.code, ran.out) == (code, "")
    [line] = ran.err.splitlines()
    problem = Problem.model_validate_json(line)
    assert problem.status == status
    assert problem.detail
    assert [each.field for each in problem.errors] == ([field] if field else [])


def test_all_refused_fields_are_reported_at_once(autotune: Autotune) -> None:
    ran = autotune("submit", "--model", "gpt-22c", "--machine", "frontir")
    assert [line.split(":")[1].strip() for line in sentences(ran)] == ["--model", "--machine"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "--model: no model was given"),
        (("--model", "layers=4,hidden=64"), "--model: num_attention_heads: "),
        (("--model", "layers=4,depth=64"), "--model: a model has no such field (got 'depth'"),
        (
            ("--model", "layers=4,hidden=100,heads=3"),
            "--model: num_attention_heads: hidden_size 100 is not divisible by 3 heads",
        ),
        (("--model", "./absent.toml"), "--model: the file cannot be read"),
        (("--model", "gpt-22b", "--space", "tabel-v"), "--space: no such"),
        (("--model", "gpt-22b", "--tp", "yes"), "--tp: not a value of this dimension (got 'yes'"),
        (("--model", "gpt-22b", "--mbs", "1,,2"), "--mbs: this is no choice of values (got '1,,2'"),
        (
            ("--model", "gpt-22b", "--zero", "0:2"),
            "--zero: the numbers of a range are greater than 0",
        ),
        (
            ("--model", "gpt-22b", "--sequence-parallel", "4"),
            "--sequence-parallel: this is a switch (got '4'; valid: on or off)",
        ),
        (
            ("--model", "gpt-22b", "--global-batch", "big"),
            "--global-batch: this is no number of samples (got 'big'; valid: one size",
        ),
    ],
)
def test_a_model_or_a_space_that_cannot_be_read(
    alone: Autotune, words: tuple[str, ...], reason: str
) -> None:
    ran = alone("sweep", *words, *FRONTIER)
    assert ran.code == ExitCode.BAD_INPUT
    [sentence] = sentences(ran)
    assert sentence.startswith(f"error: {reason}")


def test_a_field_of_a_file_is_named_behind_its_flag(alone: Autotune, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MACHINE_FILE)
    ran = alone("sweep", "--model", "gpt-22b", "--machine", str(path))
    assert ran.code == ExitCode.BAD_INPUT
    [sentence] = sentences(ran)
    assert "--machine: memory_gib: " in sentence
    path.write_text(MACHINE_FILE.replace("65536", "64"))
    assert alone("sweep", "--model", "gpt-22b", "--machine", str(path), "--nodes", "8").code == 0
    path = tmp_path / "config.json"
    path.write_text("{")
    [sentence] = sentences(alone("sweep", "--model", str(path)))
    assert "not JSON" in sentence


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("show", "10000"), "there is no campaign 10000"),
        (("show", "FINISHED", "--trial", "99"), "no trial 99"),
        (("extend", "FINISHED"), "--max-trials"),
    ],
)
def test_what_a_campaign_has_not(
    autotune: Autotune, finished: str, words: tuple[str, ...], part: str
) -> None:
    ran = autotune(*(finished if word == "FINISHED" else word for word in words))
    assert ran.code == ExitCode.BAD_INPUT
    assert part in sentences(ran)[0]


def test_no_service(alone: Autotune) -> None:
    ran = alone("ls")
    assert ran.code == ExitCode.UNREACHABLE
    [sentence] = sentences(ran)
    assert "no service of yours answers at http://127.0.0.1:9" in sentence
    assert "autotune serve" in sentence


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("sumbit",), ["No such command 'sumbit'", "see `autotune --help`"]),
        (("submit", "--modle", "tiny"), ["No such option: --modle", "--model"]),
        (("predict", "--sweep"), ["No such option: --sweep; `autotune sweep`"]),
        (("submit", "--nodes", "many"), ["--nodes: should be a valid integer", "got 'many'"]),
        (("ls", "--limit=0"), ["--limit: ", "greater than or equal to 1; got '0'"]),
        (("ls", "--state", "over"), ["--state: 'over' is not one of 'queued'"]),
        (("show", "x"), ["ID: should be a valid integer"]),
        (("show", "1", "--log", "5"), ["--log: only a trial has a log", "--trial"]),
        (("show",), ["Missing argument 'ID'", "see `autotune show --help`"]),
        (
            ("predict", "--model", "tiny", "--sequence-parallel", "--json"),
            ["--sequence-parallel: this is a switch"],
        ),
    ],
)
def test_words_that_are_refused(alone: Autotune, words: tuple[str, ...], parts: list[str]) -> None:
    ran = alone(*words)
    assert ran.code == ExitCode.BAD_INPUT
    [sentence] = sentences(ran)
    for part in parts:
        assert part in sentence


def test_a_port_in_use(alone: Autotune, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = alone("serve", "--port", str(port), "--data-dir", str(tmp_path / "data"))
    assert ran.code == ExitCode.BAD_INPUT
    [sentence] = sentences(ran)
    assert f"port {port} is in use; choose another with --port" in sentence
    assert not (tmp_path / "data").exists()


def serve(alone: Autotune, data_dir: Path, *arguments: str) -> tuple[int, str]:
    """The exit code of a service that must not start, and the one sentence that it says."""
    ran = alone("serve", "--port", "0", "--data-dir", str(data_dir), *arguments)
    [sentence] = sentences(ran)
    assert sentence.startswith("error: ")
    return ran.code, sentence


def test_two_servers_on_one_database(alone: Autotune, service: Served) -> None:
    code, sentence = serve(alone, service.data_dir)
    assert code == ExitCode.FAILED
    assert "already works on the database" in sentence
    assert "--data-dir" in sentence


def test_a_data_folder_that_cannot_be_made(alone: Autotune, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, sentence = serve(alone, tmp_path / "file" / "data")
    assert code == ExitCode.FAILED
    assert str(tmp_path / "file") in sentence


def test_a_setting_that_cannot_be_used(alone: Autotune, tmp_path: Path) -> None:
    code, sentence = serve(alone, tmp_path, "--port", "70000")
    assert code == ExitCode.BAD_INPUT
    assert sentence.startswith("error: --port: ")
    code, sentence = serve(alone, tmp_path, "--database-url", "mysql://localhost/x")
    assert code == ExitCode.BAD_INPUT
    assert "postgresql" in sentence
    (tmp_path / "autotune.db").write_text("this is no database" * 100)
    code, sentence = serve(alone, tmp_path)
    assert code == ExitCode.FAILED
    assert "the database cannot be used: file is not a database" in sentence


FULL_DISK = """
mount -t tmpfs -o size=64k none "$0" || exit 99
exec "$@"
"""


def test_a_full_disk(tmp_path: Path) -> None:
    """A file system of 64 kB, seen by this one process alone."""
    mounting = ["unshare", "--map-root-user", "--mount", "sh", "-c", FULL_DISK, str(tmp_path)]
    able = shutil.which("unshare") and subprocess.run([*mounting, "true"], check=False)
    require(able and able.returncode == 0, "leave to mount a small file system")
    done = subprocess.run(
        [*mounting, *COMMAND, "serve", "--port", "0", "--data-dir", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == ExitCode.FAILED
    [sentence] = done.stderr.strip().splitlines()
    assert sentence.startswith("error: the disk of the database is full")


def test_a_full_disk_when_files_are_written(service: Served, finished: str, tmp_path: Path) -> None:
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (100, 100))
    target = tmp_path / "run"
    arguments = ("best", finished, "--out", str(target), "--url", service.url)
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        env=environment(),
        preexec_fn=limit,
        check=False,
    )
    assert done.returncode == ExitCode.FAILED
    assert "Traceback" not in done.stderr
    assert list(target.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "start"),
    [
        (
            OSError(28, "No space left on device", "/data/x"),
            "the disk is full: /data/x; free some space, or choose another folder",
        ),
        (ZeroDivisionError("by zero"), "unexpected error: ZeroDivisionError: by zero (set AUTO"),
    ],
)
def test_an_error_is_a_sentence(error: Exception, start: str) -> None:
    reason, code = explained(error)
    assert code == ExitCode.FAILED
    assert reason.startswith(start)
