"""Current activity of a service as text."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.text import Text

from autotune.schemas.activity import Activity, CampaignActivity, TrialActivity
from server.cli.tables.elements import NO_VALUE, duration, plural, said_once, strategy_line

SILENT_AFTER_S = 60.0


def activity(found: Activity, *, most_trials: int | None = None) -> Group:
    """Return a table each of runners, trials and campaigns.

    Args:
        most_trials: maximum number of trials listed; the rest are counted.
    """
    shown = found.trials[:most_trials]
    parts: list[RenderableType] = [_runners(found), Text(), _campaigns(found)]
    if shown:
        parts += [Text(), _trials(shown)]
    if left := len(found.trials) - len(shown):
        parts.append(Text(f"and {plural(left, 'trial')} more", style="dim"))
    return Group(*parts)


def _runners(found: Activity) -> RenderableType:
    if not found.runners:
        return Text("no runner works: start one with `autotune serve` or `autotune runner`")
    rows = [
        [
            f"{runner.host}:{runner.pid}",
            duration((datetime.now(UTC) - runner.started_at).total_seconds()),
            _silence(runner.silent_s),
            str(len(runner.campaigns)),
            runner.version,
        ]
        for runner in found.runners
    ]
    return said_once(("runner", ">at work", ">last heard of", ">campaigns", "=version"), rows)


def _silence(silent_s: float) -> str:
    return f"{duration(silent_s)} ago{' (!)' if silent_s > SILENT_AFTER_S else ''}"


def _campaigns(found: Activity) -> RenderableType:
    if not found.campaigns:
        return Text("no campaign runs or waits", style="dim")
    columns = (">id", "…name", "state", "=with", ">runs", ">waits", "=runner", "waits for")
    return said_once(columns, [_campaign(each) for each in found.campaigns])


def _campaign(item: CampaignActivity) -> list[str]:
    return [
        str(item.id),
        item.name,
        item.state,
        item.evaluator,
        str(item.running),
        str(item.waiting),
        item.runner or NO_VALUE,
        item.waits_for,
    ]


def _trials(trials: list[TrialActivity]) -> RenderableType:
    rows = [
        [
            f"{trial.campaign_id}/{trial.number}",
            trial.phase,
            duration(trial.age_s),
            str(trial.strategy.num_nodes),
            " ".join(filter(None, [trial.job_id, trial.host])) or NO_VALUE,
            strategy_line(trial.strategy),
            trial.reason,
        ]
        for trial in trials
    ]
    columns = ("trial", "phase", ">age", "=>nodes", "…job, where", "…strategy", "…remark")
    return said_once(columns, rows)
