"""A trial on Ray, followed by two services at once, or by none for a while."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from evaluators.attempt import AttemptState, TrialContext, abandoned_duration_s
from evaluators.ray.backend import RayTrial
from evaluators.trial import read_result
from tests.evaluators.slurm.trials import PROFILE, Lines, request
from tests.patience import PATIENCE_S


@pytest.fixture
def context() -> Iterator[TrialContext]:
    with ThreadPoolExecutor() as readers:
        yield TrialContext(profile=PROFILE, program=Lines(), readers=readers)


def test_a_log_that_two_runners_fetch_is_there_once(tmp_path: Path, context: TrialContext) -> None:
    """One of them was taken for dead and lives."""
    asked = request(tmp_path)
    trials = [RayTrial.of(asked, context), RayTrial.of(asked, context)]
    for trial in trials:
        trial.note(taken=True)
    for part in (b"rank 0 of 1\n", b"iteration 1\n"):
        for trial in trials:
            trial.add_log(part, at=trial.logged)
    assert trials[0].attempt.log.read_bytes() == b"rank 0 of 1\niteration 1\n"


def test_a_lost_trial_held_nodes_no_longer_than_it_was_there(
    tmp_path: Path, context: TrialContext
) -> None:
    """The clock was two hours behind when it began."""
    trial = RayTrial.of(request(tmp_path), context)
    trial.note(taken=True)
    trial.add_log(b"rank 0 of 1\n", at=0)
    trial.began_at -= 7200.0
    folder = trial.attempt.folder
    trial.take(None)
    assert trial.attempt.number == 2
    assert 0.0 <= abandoned_duration_s(folder) < PATIENCE_S


def test_a_cancelled_trial_whose_keeper_died_while_nobody_followed_it_ends(
    tmp_path: Path, context: TrialContext
) -> None:
    asked = request(tmp_path)
    RayTrial.of(asked, context).note(taken=True)
    trial = RayTrial.of(asked, context)
    trial.cancel()
    trial.take(None)
    assert trial.reading
    trial.reading.result()
    outcome = read_result(asked.directory)
    assert outcome
    assert outcome.status is TrialState.CANCELLED


def test_a_keeper_of_an_earlier_version_need_not_say_where_its_log_goes_on(
    tmp_path: Path, context: TrialContext
) -> None:
    trial = RayTrial.of(request(tmp_path), context)
    trial.note(taken=True)
    trial.state = AttemptState.PENDING
    for part in (b"rank 0 of 1\n", b"iteration 1\n"):
        trial.take({"log": part, "reason": "", "end": None})
    assert trial.attempt.log.read_text() == "rank 0 of 1\niteration 1\n"
