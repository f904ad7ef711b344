"""A service as text: its users, and the result of prune."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group

from autotune.schemas.users import User, WhoAmI
from server.cli.tables.elements import moment, table
from server.wording import plural

if TYPE_CHECKING:
    from server.pruning import Prunable


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
