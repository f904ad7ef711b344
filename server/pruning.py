"""Prune campaigns that ended long ago, and trial folders without a row."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from sqlalchemy import select

from server.settings import Settings
from server.store import Store
from server.store.campaigns import RESTING, campaign_row, delete_campaign
from server.store.errors import Conflict, NotFound
from server.store.tables import CampaignRow, TrialRow

OF_TRIAL = re.compile(r"c\d+-t\d+-[0-9a-f]{12}")
"""Names of trial folders, which are tokens; anything else in that place is kept."""

BLOCK_BYTES = 512
"""Of the blocks that a file is said to have, whichever its file system's are."""


@dataclass(frozen=True, kw_only=True)
class EndedCampaign:
    """A campaign to delete, with its trials; `size_bytes` is the disk space of their folders."""

    id: int
    name: str
    state: str
    finished_at: datetime
    tokens: Sequence[str]
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Prunable:
    """Everything older than `before`: ended campaigns, and trial folders without a row."""

    before: datetime
    campaigns: Sequence[EndedCampaign]
    folders: Sequence[Path]
    folders_bytes: int

    @property
    def size_bytes(self) -> int:
        return self.folders_bytes + sum(campaign.size_bytes for campaign in self.campaigns)


def prunable(store: Store, settings: Settings, *, before: datetime) -> Prunable:
    """Return what would be deleted; nothing is changed.

    Raises:
        OSError: the folder of the trials cannot be read.
    """
    # Folders before rows: a trial's row is inserted before its folder is created.
    folders = [
        folder
        for folder in sorted(settings.trials_dir.glob("c*-t*-*"))
        if OF_TRIAL.fullmatch(folder.name)
        and not folder.is_symlink()
        and folder.lstat().st_mtime < before.timestamp()
    ]
    ended = (
        select(CampaignRow)
        .where(CampaignRow.state.in_(RESTING), CampaignRow.finished_at < before)
        .order_by(CampaignRow.id)
    )
    with store.session() as session:
        known = set(session.scalars(select(TrialRow.token)))
        campaigns = []
        for row in session.scalars(ended):
            tokens = session.scalars(select(TrialRow.token).where(TrialRow.campaign_id == row.id))
            campaigns.append(_ended(row, tokens.all(), settings))
    lost = [folder for folder in folders if folder.name not in known]
    return Prunable(
        before=before,
        campaigns=campaigns,
        folders=lost,
        folders_bytes=_size_bytes(lost),
    )


def prune(store: Store, settings: Settings, found: Prunable) -> Prunable:
    """Delete what was found, and return what was deleted; a campaign that has continued since is
    kept."""
    gone = []
    for campaign in found.campaigns:
        if _delete(store, campaign.id, before=found.before):
            gone.append(campaign)
            for token in campaign.tokens:
                shutil.rmtree(settings.trial_dir(token), ignore_errors=True)
    for folder in found.folders:
        shutil.rmtree(folder, ignore_errors=True)
    return replace(found, campaigns=gone)


def _ended(row: CampaignRow, tokens: Sequence[str], settings: Settings) -> EndedCampaign:
    assert row.finished_at is not None
    return EndedCampaign(
        id=row.id,
        name=row.name,
        state=row.state,
        finished_at=row.finished_at,
        tokens=tokens,
        size_bytes=_size_bytes(map(settings.trial_dir, tokens)),
    )


def _delete(store: Store, campaign_id: int, *, before: datetime) -> bool:
    """Delete a campaign if it is unchanged since it was found; return whether it was deleted."""
    try:
        with store.transaction() as session:
            row = campaign_row(session, campaign_id, for_update=True)
            if row.state not in RESTING or row.finished_at is None or row.finished_at >= before:
                return False
            delete_campaign(session, campaign_id)
    except (NotFound, Conflict):
        return False
    return True


def _size_bytes(folders: Iterable[Path]) -> int:
    """Return the disk space of the files, which is less than the length of a shortened log."""
    files = (path for folder in folders for path in folder.rglob("*"))
    return sum(BLOCK_BYTES * path.lstat().st_blocks for path in files if path.is_file())
