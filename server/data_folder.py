"""The folder of everything that is kept, closed to all other users."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import structlog

FILE = stat.S_IRUSR | stat.S_IWUSR
OTHERS = stat.S_IRWXG | stat.S_IRWXO
log = structlog.get_logger(__name__)


def closed_file(path: Path) -> BinaryIO:
    """Return a file, opened to append to it, that this user alone may read and write (0600)."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE)
    with suppress(OSError):  # of another user's
        os.fchmod(descriptor, FILE)  # one of an earlier version
    return os.fdopen(descriptor, "ab")


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
