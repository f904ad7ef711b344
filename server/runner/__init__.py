"""The runner: claims campaigns and advances each, trial by trial."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.settings import Settings


def run(settings: Settings) -> None:
    """Work on the campaigns of this database until SIGTERM or SIGINT.

    Raises:
        InvalidInput: the database's URL is invalid.
        InUse: another runner works on this SQLite file.
        UnknownSchema: the database was written by a later version, or by one too old to be
            upgraded.
        DatabaseReplaced: the database was deleted or replaced meanwhile.
    """
    # Imported late: starting a runner's process does not need the surrogate model.
    from server.runner.runner import run_until_stopped

    run_until_stopped(settings)
