from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from autotune.schemas.choices import CampaignState
from search_spaces.errors import InvalidInput
from server.cli.commands.storage import length_of_time
from server.store import Store
from server.store.campaigns import campaign_row, change_state
from tests.server.asking import created
from tests.server.cli.conftest import Autotune


def test_a_database_is_pruned(alone: Autotune, tmp_path: Path) -> None:
    folder = ("--data-dir", str(tmp_path))
    missing = alone("prune", "--older-than", "90d", *folder)
    assert (missing.code, "there is no database" in missing.err) == (1, True)
    with closing(Store(f"sqlite:///{tmp_path / 'autotune.db'}")) as store:
        store.upgrade()
        campaign = created(store, name="long ago")
        with store.transaction() as session:
            row = campaign_row(session, campaign.id)
            change_state(session, row, CampaignState.DONE)
            row.finished_at = row.created_at - timedelta(days=100)

        tried = alone("prune", "--older-than", "90d", "--dry-run", *folder)
        assert "long ago" in tried.out
        assert "1 campaign would be deleted: 0 B of files" in tried.err
        pruned = alone("prune", "--older-than", "90d", "--json", *folder)
        assert [each["id"] for each in pruned.json()["campaigns"]] == [campaign.id]
        assert "nothing is" not in alone("prune", "--older-than", "90d", *folder).out


def test_lengths_of_time() -> None:
    assert length_of_time("90d") == length_of_time("2160h") == timedelta(days=90)
    assert length_of_time("2w") == timedelta(days=14)
    for text in ("", "90", "-1d", "d", "1y", "1.5d", "999999w"):
        with pytest.raises(InvalidInput):
            length_of_time(text)
