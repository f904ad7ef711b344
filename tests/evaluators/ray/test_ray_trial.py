"""A trial on Ray, followed by two services at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evaluators.attempt.abandonment import abandoned_duration_s
from evaluators.attempt.attempt_state import AttemptState
from evaluators.ray.ray_trial import RayTrial, RayTrialEndings
from tests.evaluators.slurm.trials import PATIENCE_S, PROFILE, Lines, request


def test_a_log_that_two_runners_fetch_is_there_once(tmp_path: Path) -> None:
    """One of them was taken for dead and lives."""
    asked = request(tmp_path)
    trials = [RayTrial.of(asked), RayTrial.of(asked)]
    for trial in trials:
        trial.note(taken=True)
    for part in (b"rank 0 of 1\n", b"iteration 1\n"):
        for trial in trials:
            trial.add_log(part, at=trial.logged)
    assert trials[0].attempt.log.read_bytes() == b"rank 0 of 1\niteration 1\n"


def test_a_lost_trial_held_nodes_no_longer_than_it_was_there(tmp_path: Path) -> None:
    """The clock was two hours behind when it began."""
    trial = RayTrial.of(request(tmp_path))
    trial.note(taken=True)
    trial.add_log(b"rank 0 of 1\n", at=0)
    trial.began_at -= 7200.0
    folder = trial.attempt.folder
    with ThreadPoolExecutor() as readers:
        RayTrialEndings(profile=PROFILE, program=Lines(), readers=readers).take(trial, None)
    assert trial.attempt.number == 2
    assert 0.0 <= abandoned_duration_s(folder) < PATIENCE_S


def test_a_keeper_of_an_earlier_version_need_not_say_where_its_log_goes_on(tmp_path: Path) -> None:
    trial = RayTrial.of(request(tmp_path))
    trial.note(taken=True)
    trial.state = AttemptState.PENDING
    with ThreadPoolExecutor() as readers:
        endings = RayTrialEndings(profile=PROFILE, program=Lines(), readers=readers)
        for part in ("rank 0 of 1\n", "iteration 1\n"):
            endings.take(trial, {"log": part, "reason": "", "end": None})
    assert trial.attempt.log.read_text() == "rank 0 of 1\niteration 1\n"
