"""The folder of everything that is kept, closed to all other users."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import structlog

OTHERS = stat.S_IRWXG | stat.S_IRWXO
log = structlog.get_logger(__name__)


def closed_folder(folder: Path) -> Path:
    """Return the folder, made where there is none, with nothing in it for other users (0700).

    One that belongs to somebody else, or to all (as /tmp does), stays as it is, and is warned of:
    what lies in it then rests on the files' own permissions.

    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if not found.st_mode & OTHERS:
        return folder
    if found.st_uid != os.geteuid() or found.st_mode & stat.S_ISVTX:
        log.warning("data_folder_open_to_others", folder=str(folder))
        return folder
    folder.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)
    return folder
