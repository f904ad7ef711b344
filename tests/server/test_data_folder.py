"""What other users of this machine find of a service's data."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from server.app import create_app
from server.data_folder import closed_folder
from server.settings import Settings
from tests.pace import QUICK
from tests.server.conftest import opened_store


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("open_before", [False, True], ids=["new", "open to others"])
def test_a_service_closes_its_folder_and_its_database(
    tmp_path: Path, migrated: Path, *, open_before: bool
) -> None:
    folder = tmp_path / "data"
    if open_before:
        folder.mkdir(mode=0o755)
        opened_store(Settings(data_dir=folder), migrated).close()
        folder.joinpath("autotune.db").chmod(0o644)
    app = create_app(Settings(data_dir=folder), pace=QUICK)
    with app.state.store.transaction():  # as something is written
        inside = {path.name: mode(path) for path in folder.iterdir()}
    app.state.store.close()
    assert mode(folder) == 0o700
    assert inside["autotune.db"] == 0o600
    assert inside["trials"] == 0o700
    assert not any(bits & 0o077 for bits in inside.values()), inside


def test_a_folder_of_all_users_is_left_as_it_is(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    closed_folder(shared)
    assert mode(shared) == 0o1777
