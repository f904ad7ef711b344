"""Explain why a trial's files could not be written: a full, read-only or unresponsive file
system."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from autotune.files import OUT_OF_ROOM, is_file_system_failure

MIB = 2**20
LEAST_FREE_BYTES = 65_536
"""Below this, a log may have been cut before it named the cause."""


def unwritable(folder: Path, code: int = errno.ENOSPC) -> str:
    """Return a message: the file system of `folder` was full, with its free space now; or it was
    read-only, or did not respond.

    The text is the same for all trials on one file system, so that equal failures can be
    recognised.

    Args:
        code: the errno of the failed write.
    """
    if code not in OUT_OF_ROOM:
        return f"the file system of {folder.parent} could not be written ({os.strerror(code)})"
    there = _nearest(folder)
    room = os.statvfs(there)
    free, size = room.f_bavail * room.f_frsize // MIB, room.f_blocks * room.f_frsize // MIB
    space = f"{free:,} of {size:,} MiB are free at {_mount_point(there)}"
    if _takes_no_more_files(room):
        space += ", and no more files can be made there"
    return f"the disk was full ({os.strerror(code)}): {space}"


def is_unwritable(folder: Path) -> bool:
    """Return whether almost nothing can be written there now. Quotas are not detected."""
    try:
        room = os.statvfs(_nearest(folder))
    except OSError as error:
        return is_file_system_failure(error)
    if room.f_flag & os.ST_RDONLY:
        return True
    return room.f_bavail * room.f_frsize < LEAST_FREE_BYTES or _takes_no_more_files(room)


def _takes_no_more_files(room: os.statvfs_result) -> bool:
    return room.f_files > 0 and room.f_favail == 0


def _nearest(folder: Path) -> Path:
    folder = folder.absolute()
    return next(each for each in (folder, *folder.parents) if each.is_dir())


def _mount_point(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.is_mount())
