"""The runner: claims campaigns and brings each one forward, trial by trial."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.settings import Settings


def run(settings: Settings) -> None:
    """Work on the campaigns of this database until SIGTERM or SIGINT.

    Raises:
        InvalidInput: the database's URL is not one.
        InUse: another runner works on this SQLite file.
        UnknownSchema: a later version wrote the database, or one too old to be upgraded.
        DatabaseReplaced: the database was deleted or replaced meanwhile.
    """
    # Late: whoever only starts a runner's process needs no surrogate model.
    from server.runner.runner import run_until_stopped

    run_until_stopped(settings)
