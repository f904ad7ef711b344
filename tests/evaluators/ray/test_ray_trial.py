"""A trial on Ray, followed by two services at once."""

from __future__ import annotations

from pathlib import Path

from evaluators.ray.ray_trial import RayTrial
from tests.evaluators.slurm.trials import request


def test_a_log_that_two_runners_fetch_is_there_once(tmp_path: Path) -> None:
    """One of them was taken for dead and lives."""
    asked = request(tmp_path)
    trials = [RayTrial.of(asked), RayTrial.of(asked)]
    for trial in trials:
        trial.note(taken=True)
    for part in (b"rank 0 of 1\n", b"iteration 1\n"):
        for trial in trials:
            trial.add_log(part)
    assert trials[0].attempt.log.read_bytes() == b"rank 0 of 1\niteration 1\n"
