"""Punch holes into files while other processes append to them and read from any offset.

The module imports nothing else of this package, so that it can be sent to a cluster.
"""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import suppress

KEPT_BYTES = 4 << 20
"""Bytes kept before the reader's position: a reader that lost its last part asks again, and other
readers use the file, too."""
AT_ONCE = 1 << 20
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # from linux/falloc.h
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class CannotShorten(Exception):
    """The file system cannot punch holes."""


def punch_hole(file: int, start: int, end: int) -> None:
    """Replace a part of a file by a hole, which reads as zeros and takes no space.

    Raises:
        CannotShorten: the file system does not support it.
        OSError: the file cannot be written.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate", None)
    if fallocate is None:
        raise CannotShorten("this system has no fallocate")
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if fallocate(file, _KEEP_SIZE | _PUNCH_HOLE, start, end - start) == 0:
        return
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        raise CannotShorten(os.strerror(number))
    raise OSError(number, os.strerror(number))


def free_consumed(file: int, consumed: int, *, freed: int) -> int:
    """Free the part of a file that a reader has consumed, except the last KEPT_BYTES.

    Args:
        consumed: number of bytes read so far.
        freed: number of bytes freed before.

    Returns:
        The number of bytes freed now; unsupported file systems count as freed.
    """
    end = consumed - KEPT_BYTES
    if end - freed < AT_ONCE:
        return freed
    with suppress(CannotShorten, OSError):
        punch_hole(file, freed, end)
    return end
