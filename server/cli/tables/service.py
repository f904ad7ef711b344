"""A service as text: its activity, users, and the result of prune."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from autotune.schemas.activity import Activity, TrialActivity
from autotune.schemas.users import User, WhoAmI
from server.cli.tables.elements import NO_VALUE, TableColumns, moment, strategy_line, table
from server.wording import duration, plural

if TYPE_CHECKING:
    from server.pruning import Prunable


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
        return Text("no runner works on a campaign", style="dim")
    return table(
        found.runners,
        (
            ("runner", lambda runner: f"{runner.host}:{runner.pid}"),
            ("campaigns", lambda runner: ", ".join(map(str, runner.campaigns))),
        ),
    )


def _campaigns(found: Activity) -> RenderableType:
    if not found.campaigns:
        return Text("no campaign runs or waits", style="dim")
    return table(
        found.campaigns,
        (
            (">id", lambda item: item.id),
            ("…name", lambda item: item.name),
            ("state", lambda item: item.state),
            ("=with", lambda item: item.evaluator),
            (">runs", lambda item: item.running),
            (">waits", lambda item: item.waiting),
            ("=runner", lambda item: item.runner or NO_VALUE),
            ("waits for", lambda item: item.waits_for),
        ),
    )


def _trials(trials: list[TrialActivity]) -> Group:
    columns: TableColumns[TrialActivity] = (
        ("trial", lambda trial: f"{trial.campaign_id}/{trial.number}"),
        ("phase", lambda trial: trial.phase),
        (">age", lambda trial: duration(trial.age_s)),
        ("=>nodes", lambda trial: trial.strategy.num_nodes),
        ("…job, where", lambda t: " ".join(filter(None, [t.job_id, t.host])) or NO_VALUE),
        ("…strategy", lambda trial: strategy_line(trial.strategy)),
        ("…remark", lambda trial: trial.reason),
    )
    return table(trials, columns)


def users(found: Sequence[User]) -> Group:
    """Return one row per user, with unfinished campaigns."""
    return table(
        found,
        (
            ("user", lambda user: user.name),
            ("scope", lambda user: user.scope),
            (">campaigns", lambda user: user.unfinished_campaigns),
            ("last here", lambda user: moment(user.last_used_at)),
            (
                "",
                lambda user: (
                    "revoked" if user.revoked_at else "" if user.has_token else "only by the proxy"
                ),
            ),
        ),
    )


def unfinished(user: User) -> str:
    return f"unfinished campaigns of {user.name}: {user.unfinished_campaigns}"


def who(me: WhoAmI) -> str:
    """Return the current user: `alice, who may submit`."""
    if me.name is None:
        return "the service's own user, who may do all"
    return f"{me.name}, with the scope {me.scope}"


KB = 1000


def size(size_bytes: float) -> str:
    """Return a file size: `0 B`, `1.4 kB`, `12.0 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < KB:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= KB
    return f"{size_bytes:,.1f} TB"


def pruned(gone: Prunable) -> Group:
    """Return one row per deleted campaign, or campaign to be deleted."""
    return table(
        gone.campaigns,
        (
            (">campaign", lambda campaign: campaign.id),
            ("name", lambda campaign: campaign.name),
            ("state", lambda campaign: campaign.state),
            ("ended", lambda campaign: moment(campaign.finished_at)),
            (">trials", lambda campaign: len(campaign.tokens)),
            (">size", lambda campaign: size(campaign.size_bytes)),
        ),
    )


def pruned_sentence(gone: Prunable, *, dry_run: bool) -> str:
    """Return how much was deleted, or would be."""
    count = len(gone.campaigns) + len(gone.folders)
    verb = "would be deleted" if dry_run else ("is deleted" if count == 1 else "are deleted")
    if not count:
        return f"no campaign ended before {moment(gone.before)}: nothing {verb}"
    parts = [plural(len(gone.campaigns), "campaign")] if gone.campaigns else []
    if gone.folders:
        parts.append(f"{plural(len(gone.folders), 'folder')} of trials that no campaign knows")
    return f"{' and '.join(parts)} {verb}: {size(gone.size_bytes)} of files"


def pruned_document(gone: Prunable) -> dict[str, Any]:
    """Return what was deleted, or would be, as JSON."""
    return {
        "before": gone.before.isoformat(),
        "campaigns": [
            {
                "id": campaign.id,
                "name": campaign.name,
                "state": campaign.state,
                "finished_at": campaign.finished_at.isoformat(),
                "trials": len(campaign.tokens),
                "size_bytes": campaign.size_bytes,
            }
            for campaign in gone.campaigns
        ],
        "folders": [folder.name for folder in gone.folders],
        "size_bytes": gone.size_bytes,
    }
