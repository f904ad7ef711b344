"""The data folder, closed to all other users."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

import structlog

FILE = stat.S_IRUSR | stat.S_IWUSR
OTHERS = stat.S_IRWXG | stat.S_IRWXO
log = structlog.get_logger(__name__)


def closed_file(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE), "ab")


def closed_folder(folder: Path) -> Path:
    """Create the folder if it is missing, and close it to other users (0700); return it.

    The permissions of a folder of another user, or of all (such as /tmp), are not changed, and a
    warning is logged: the permissions of its files still apply.

    Raises:
        OSError: it cannot be created.
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
