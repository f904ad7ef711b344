"""Slurm's commands: what they answer, and what is done when they do not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from evaluators.cluster.profile import ClusterProfile, Scheduling
from evaluators.cluster.shell import directive_line
from evaluators.slurm.commands import (
    AccountingDisabled,
    QueueFull,
    Slurm,
    SlurmError,
    SlurmJob,
    SlurmRefused,
    SlurmUnavailable,
    error_of,
    jobs_of_sacct,
    jobs_of_squeue,
    run_within,
    why_pending,
)
from tests.cluster.cluster import Cluster
from tests.patience import until

on_slurm = pytest.mark.xdist_group("slurm")


def script(folder: Path, *directives: str, lines: str = "sleep 1000") -> Path:
    path = folder / "job.sh"
    head = [directive_line(words) for words in ("--output=/dev/null", *directives)]
    path.write_text("\n".join(["#!/bin/bash", *head, lines, ""]))
    return path


def test_a_command_is_ended_with_all_that_it_started() -> None:
    code, *_ = run_within(
        ["bash", "-c", "sleep 654321 & sleep 654321"], limit_s=0.5, environment=os.environ
    )
    assert code is None
    until(lambda: ["sleep", "654321"] not in command_lines())


def running(commands: Slurm, job_id: str) -> SlurmJob | None:
    return next((job for job in commands.squeue() if job.id == job_id and job.nodes), None)


def command_lines() -> list[list[str]]:
    """Of this machine's processes; one that ends meanwhile is left out."""
    return [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]


def test_a_command_missing_from_the_path_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SlurmUnavailable, match="there is no squeue on the PATH"):
        Slurm().squeue()


@on_slurm
def test_a_job_is_submitted_seen_and_ended(slurm: Cluster, tmp_path: Path) -> None:
    commands = Slurm()
    name = "a|b c'd\"e$x`y"
    job_id = commands.sbatch(script(tmp_path, f"--job-name={name}"))
    job = until(lambda: running(commands, job_id))
    assert (job.id, job.name, job.state) == (job_id, name, "RUNNING")
    assert job.submitted_at == pytest.approx(time.time(), abs=30)
    assert commands.nodes("n[01-02,04]") == ["n01", "n02", "n04"]
    commands.scancel([job_id, "999999"])
    until(lambda: {j.state for j in commands.squeue() if j.id == job_id} == {"CANCELLED"})
    assert commands.calls["sbatch"] == 1
    with pytest.raises(AccountingDisabled):
        commands.sacct([name], since=0)
    assert commands.down_nodes() == frozenset()
    slurm.down("n03")
    assert commands.down_nodes() == {"n03"}


@on_slurm
@pytest.mark.usefixtures("slurm")
def test_a_refusal_is_reported_in_slurms_words(tmp_path: Path) -> None:
    with pytest.raises(SlurmRefused) as refused:
        Slurm().sbatch(script(tmp_path, "--partition=nowhere"))
    assert str(refused.value) == (
        "invalid partition specified: nowhere; "
        "Batch job submission failed: Invalid partition name specified"
    )
    with pytest.raises(SlurmRefused, match="unrecognized option '--nonsense'"):
        Slurm().sbatch(script(tmp_path, "--nonsense"))


@on_slurm
def test_a_surrounding_allocation_leaves_our_jobs_alone(
    slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook that runs in a job of its own, whose user has defaults as well."""
    for name, value in {
        "SLURM_JOB_ID": "4711",
        "SLURM_NTASKS_PER_NODE": "16",
        "SBATCH_TIMELIMIT": "1",
        "SBATCH_EXCLUSIVE": "1",
        "SQUEUE_FORMAT": "%i",
        "CUDA_VISIBLE_DEVICES": "5",
        "SBATCH_PARTITION": "short",
    }.items():
        monkeypatch.setenv(name, value)
    variables_file = tmp_path / "variables_file"
    path = script(
        tmp_path, lines=f"env >{variables_file}.part; mv {variables_file}.part {variables_file}"
    )
    named = ClusterProfile(name="named", slurm=Scheduling(partition="batch"))
    Slurm.of(named).sbatch(path, "--partition=batch")
    until(variables_file.exists)
    variables = dict(line.partition("=")[::2] for line in variables_file.read_text().splitlines())
    assert variables["SLURM_JOB_ID"] != "4711"
    assert variables["SLURM_JOB_PARTITION"] == "batch"
    assert "SLURM_NTASKS_PER_NODE" not in variables
    assert variables.get("CUDA_VISIBLE_DEVICES") != "5"
    variables_file.unlink()
    slurm.wait_idle()
    Slurm.of(ClusterProfile(name="unnamed")).sbatch(path)
    until(variables_file.exists)
    assert "SLURM_JOB_PARTITION=short" in variables_file.read_text(), "a user's own default holds"


@on_slurm
def test_a_controller_that_hangs_is_given_up(slurm: Cluster) -> None:
    given_up = pytest.raises(SlurmUnavailable, match=r"squeue did not answer within 1 s")
    with slurm.hanging_controller(), given_up:
        Slurm(limit_s=1).squeue()
    assert Slurm().squeue() is not None


@on_slurm
def test_a_controller_that_is_down_is_not_a_refusal(slurm: Cluster, tmp_path: Path) -> None:
    slurm.stop_controller()
    for call in (Slurm(limit_s=2).squeue, lambda: Slurm(limit_s=2).sbatch(script(tmp_path))):
        with pytest.raises(SlurmUnavailable):
            call()


POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        (SlurmRefused, ["ask for a GPU type and try again", "Unspecified error"]),
        (SlurmRefused, ["the licence server is not responding", "Unspecified error"]),
        (SlurmRefused, ["munge: use -A", "Invalid account or account/partition combination"]),
        (SlurmRefused, ["QOSMaxWallDurationPerJobLimit", POLICY]),
        (SlurmRefused, ["QOSMinGRES", POLICY]),
        (SlurmRefused, ["projects under QOSGrpGRES need approval", "Unspecified error"]),
        (QueueFull, ["QOSMaxSubmitJobPerUserLimit", POLICY]),
        (QueueFull, ["AssocMaxSubmitJobLimit", POLICY]),
        (QueueFull, ["QOSGrpSubmitJobsLimit", POLICY]),
        (QueueFull, ["QOSGrpGRES", POLICY]),
        (QueueFull, ["AssocGrpSubmitJobsLimit", POLICY]),
        (QueueFull, ["Slurm job queue full, sleeping and retrying"] * 2
         + ["Unable to create job record, try again"]),
        (SlurmUnavailable, ["Unable to contact slurm controller (connect failure)"]),
        (SlurmUnavailable, ["use -A next time", "Socket timed out on send/recv operation"]),
        (SlurmUnavailable, ["Munge encode failed: no socket", "Protocol authentication error"]),
    ],
)  # fmt: skip
def test_the_last_line_of_sbatch_decides(kind: type[SlurmError], lines: list[str]) -> None:
    *before, last = lines
    shown = [*before, f"Batch job submission failed: {last}"]
    error = error_of("".join(f"sbatch: error: {line}\n" for line in shown), otherwise="")
    assert type(error) is kind
    assert last in str(error)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (SlurmUnavailable, "sinfo: fatal: Could not establish a configuration source"),
        (
            SlurmUnavailable,
            "slurm_load_jobs error: Unable to contact slurm controller (send failure)",
        ),
        (SlurmUnavailable, "sacct: error: Problem talking to the database: Connection refused"),
        (AccountingDisabled, "Slurm accounting storage is disabled"),
        (SlurmRefused, "this login node is read only: go to login2 and try again"),
        (SlurmRefused, ""),
    ],
)
def test_the_last_line_of_others_decides(kind: type[SlurmError], line: str) -> None:
    error = error_of(f"{line}\n\n", otherwise="it ended with 1")
    assert type(error) is kind
    assert str(error)


@pytest.mark.parametrize(
    "printed",
    [
        "1234567",
        "1234567;north",
        "Welcome\n1234567",
        "Welcome to 2026\n2026\nSubmitted batch job 1234567\nHave a good day",
        "Submitted batch job 1234567 on cluster north",
    ],
)
def test_a_wrapper_of_sbatch_may_print_more(
    printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = tmp_path / "sbatch"
    wrapper.write_text(f"#!/bin/sh\nprintf '%s\\n' '{printed}'\n")
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert Slurm().sbatch(tmp_path / "job.sh") == "1234567"


def test_squeue_lines_are_read_whatever_the_name() -> None:
    text = (
        "CLUSTER: loopback\n"
        "12|RUNNING|1700000000|1700000060|1700003660|n[01-04,07]|None|trial-a.1\n"
        "13|PENDING|1700000001|N/A|N/A||ReqNodeNotAvail, UnavailableNodes:n[01-02]|a|b c'd\"\n"
        "the second line of a name|RUNNING|\n"
        "14|SOMETHING_NEW|1700000001|N/A|N/A||None|trial-b.1\n"
        "15_[1-9]|PENDING|1700000001|N/A|N/A||Dependency|an array\n"
    )
    running, waiting, array = jobs_of_squeue(text)
    assert running == SlurmJob(
        id="12",
        name="trial-a.1",
        state="RUNNING",
        submitted_at=1700000000.0,
        started_at=1700000060.0,
        ended_at=1700003660.0,
        nodes="n[01-04,07]",
    )
    assert waiting.name == "a|b c'd\""
    assert waiting.reason == "ReqNodeNotAvail, UnavailableNodes:n[01-02]"
    assert waiting.started_at is None
    assert (array.id, array.waits) == ("15_[1-9]", True)


def test_sacct_lines_tell_who_cancelled_and_how_it_ended() -> None:
    text = (
        "7|CANCELLED by 1000|1700000000|1700000060|1700000070|n01|0:15|trial-a.1\n"
        "8|CANCELLED|1700000000|Unknown|1700000070|None assigned|0:0|trial|b\n"
        "9|FAILED|1700000000|1700000060|1700000070|n01|66:0|trial-c.1\n"
        "10|OUT_OF_MEMORY|1700000000|1700000060|1700000070|n01|0:125|trial-d.1\n"
        "no job at all\n"
    )
    by, unknown, failed, memory = jobs_of_sacct(text)
    assert (by.state, by.cancelled_by, by.exit_code) == ("CANCELLED", 1000, 143)
    assert (unknown.cancelled_by, unknown.nodes, unknown.name) == (None, "", "trial|b")
    assert (failed.exit_code, failed.finished) == (66, True)
    assert memory.state == "OUT_OF_MEMORY"


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("Resources", "waiting for free nodes (Resources)"),
        ("Priority", "behind jobs of higher priority (Priority)"),
        ("JobHeldUser", "held by the user (JobHeldUser)"),
        ("PartitionDown", "the partition is down (PartitionDown)"),
        ("QOSMaxNodePerUserLimit", "a limit of its QOS is reached (QOSMaxNodePerUserLimit)"),
        ("AssocGrpNodeLimit", "a limit of the account is reached (AssocGrpNodeLimit)"),
        (
            "ReqNodeNotAvail, UnavailableNodes:n[01-02]",
            "nodes that it needs are not available (ReqNodeNotAvail, UnavailableNodes:n[01-02])",
        ),
        ("SomethingNew", "waiting (SomethingNew)"),
        ("", "not yet looked at by Slurm (PENDING)"),
    ],
)
def test_why_a_job_waits_is_a_sentence_with_slurms_word(reason: str, sentence: str) -> None:
    assert why_pending(SlurmJob(id="1", name="t", state="PENDING", reason=reason)) == sentence
