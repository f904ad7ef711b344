from __future__ import annotations

from datetime import UTC, datetime

from autotune.schemas.activity import Activity, CampaignActivity, RunnerActivity, TrialActivity
from server.cli.tables.service import activity
from tests.server.asking import STRATEGY
from tests.server.cli.tables.printing import printed


def shown(found: Activity, *, width: int, most_trials: int | None = None) -> list[str]:
    lines = printed(activity(found, most_trials=most_trials), width=width).splitlines()
    return [line.rstrip() for line in lines]


def test_all_fits_a_narrow_terminal_and_what_is_left_out_is_counted() -> None:
    now = datetime.now(UTC)
    runner = RunnerActivity(host="login3", pid=4821, campaigns=[4])
    asked = CampaignActivity(
        id=4,
        name="22B " * 20,
        state="running",
        evaluator="slurm",
        runner="login3:4821",
        waiting=2,
        waits_for="jobs of a higher priority are before it",
    )
    trials = [
        TrialActivity(
            campaign_id=4,
            number=number,
            purpose="search",
            evaluator="slurm",
            phase="waiting",
            reason="Priority",
            job_id="81234",
            age_s=75.0,
            strategy=STRATEGY,
            created_at=now,
        )
        for number in (1, 2, 3)
    ]
    found = Activity(runners=[runner], trials=trials, campaigns=[asked])
    for width in (80, 140):
        lines = shown(found, width=width, most_trials=2)
        assert max(map(len, lines)) <= width
        assert next(line for line in lines if line.startswith("login3:4821")).split()[1:] == ["4"]
        first = next(line for line in lines if line.startswith("4/1"))
        assert first.split()[1:4] == ["waiting", "1", "min"]
        assert lines[-1] == "and 1 trial more"
    assert any("higher priority are before it" in line for line in shown(found, width=140))
