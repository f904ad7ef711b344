"""Folders as crashes, full disks and slow file systems leave them."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluators.attempt import Abandoned, read_abandoned, write_abandoned
from evaluators.slurm.attempt_files import (
    AttemptFiles,
    Claim,
    ScriptEnd,
    read_attempt_files,
    write_intent,
    write_job,
)


def test_without_a_folder_nothing_is_known(tmp_path: Path) -> None:
    assert read_attempt_files(tmp_path / "none") == AttemptFiles()
    assert read_attempt_files(tmp_path) == AttemptFiles()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_intent(tmp_path, name="trial-a.1", at=12.5)
    write_job(tmp_path, job_id="7")
    (tmp_path / "claim").mkdir()
    (tmp_path / "claim" / "job").write_text("7 100.125 n[01-02]\n")
    (tmp_path / "ended").write_text("143 100.125 130.25\n")
    files = read_attempt_files(tmp_path)
    assert files == AttemptFiles(
        intended_at=12.5,
        first_intended_at=12.5,
        job_id="7",
        claimed=True,
        claim=Claim(job_id="7", at=100.125, nodes="n[01-02]"),
        end=ScriptEnd(exit_code=143, began_at=100.125, ended_at=130.25),
    )
    assert files.end is not None
    assert files.end.duration_s == 30.125


def test_a_new_intent_forgets_the_job_of_an_earlier_one(tmp_path: Path) -> None:
    write_intent(tmp_path, name="trial-a.1", at=1.0)
    write_job(tmp_path, job_id="7")
    write_intent(tmp_path, name="trial-a.1", at=2.0)
    assert read_attempt_files(tmp_path) == AttemptFiles(intended_at=2.0, first_intended_at=1.0)


def test_an_attempt_that_was_given_up_keeps_what_it_cost(tmp_path: Path) -> None:
    write_abandoned(tmp_path, status="node_fail", reason="a node failed", duration_s=12.5)
    assert read_attempt_files(tmp_path).abandoned
    assert read_abandoned(tmp_path) == Abandoned("node_fail", 12.5)
    assert read_abandoned(tmp_path / "none") is None


@pytest.mark.parametrize("text", ["", "7", "7 soon n01", '{"at": ', '{"at": null}', "[1]", "\0"])
def test_cut_files_count_as_far_as_they_go(tmp_path: Path, text: str) -> None:
    (tmp_path / "claim").mkdir()
    for name in ("intent.json", "job.json", "claim/job", "ended", "abandoned.json"):
        (tmp_path / name).write_text(text)
    files = read_attempt_files(tmp_path)
    assert files.intended_at == pytest.approx((tmp_path / "intent.json").stat().st_mtime)
    assert (files.job_id, files.claimed, files.claim, files.end) == (None, True, None, None)
    assert read_abandoned(tmp_path) == Abandoned()
