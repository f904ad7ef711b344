"""Results of backup, restore and prune as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from server.cli.tables.elements import headed, moment, plural

if TYPE_CHECKING:
    from server.pruning import Prunable
    from server.store.backup import CopiedRows

KB = 1000


def size(size_bytes: float) -> str:
    """Return a file size: `0 B`, `1.4 kB`, `12.0 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < KB:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= KB
    return f"{size_bytes:,.1f} TB"


def copied(rows: CopiedRows) -> str:
    """Return the content of a backup: `3 campaigns, 41 trials and 1 calibration`."""
    campaigns, trials = plural(rows.campaigns, "campaign"), plural(rows.trials, "trial")
    return f"{campaigns}, {trials} and {plural(rows.calibrations, 'calibration')}"


def pruned(gone: Prunable) -> Table:
    """Return a table of the deleted campaigns, or of those to be deleted."""
    table = headed(">campaign", "name", "state", "ended", ">trials", ">size")
    for campaign in gone.campaigns:
        table.add_row(
            str(campaign.id),
            campaign.name,
            campaign.state,
            moment(campaign.finished_at),
            str(len(campaign.tokens)),
            size(campaign.size_bytes),
        )
    return table


def pruned_sentence(gone: Prunable, *, dry_run: bool) -> str:
    """Return how much was deleted, or would be."""
    count = len(gone.campaigns) + len(gone.folders) + gone.changes
    verb = "would go" if dry_run else ("is deleted" if count == 1 else "are deleted")
    if not count:
        return f"nothing ended before {moment(gone.before)}: nothing {verb}"
    parts = [plural(len(gone.campaigns), "campaign")] if gone.campaigns else []
    if gone.folders:
        parts.append(f"{plural(len(gone.folders), 'folder')} of trials that no campaign knows")
    if gone.changes:
        parts.append(f"{plural(gone.changes, 'change')} of the audit")
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
        "audit": gone.changes,
        "size_bytes": gone.size_bytes,
    }
