"""Settings from the command line, over the environment's and the file's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from server.cli.choices import given

if TYPE_CHECKING:
    from server.settings import Settings


@dataclass(frozen=True, kw_only=True)
class StorageOptions:
    """Where campaigns are kept."""

    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            help="Folder of the database and the trials' files.  "
            "\\[default: AUTOTUNE_DATA_DIR, else the user's data folder]",
        ),
    ] = None
    database_url: Annotated[
        str | None,
        typer.Option(
            "--database-url",
            help="PostgreSQL or SQLite.  \\[default: AUTOTUNE_DATABASE_URL, else in the folder]",
        ),
    ] = None

    def settings(self, **others: object) -> Settings:
        """Raises pydantic's ValidationError for a setting that cannot be used."""
        from server.settings import Settings

        return Settings(**given(data_dir=self.data_dir, database_url=self.database_url, **others))
