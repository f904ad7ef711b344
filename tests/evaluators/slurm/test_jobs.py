from __future__ import annotations

import pytest

from evaluators.slurm.jobs import SlurmJob, jobs_of_sacct, jobs_of_squeue, why_pending


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
