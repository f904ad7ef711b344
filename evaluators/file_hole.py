"""Parts of files given back to the disk while others write at their ends and read from any byte on.

It needs nothing else of this package, so that a cluster can be sent it.
"""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import suppress

KEPT_BYTES = 4 << 20
"""Of what was handed on: whoever lost the last of it asks again, and others read it here, too."""
AT_ONCE = 1 << 20
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of linux/falloc.h
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class CannotShorten(Exception):
    """The file system gives back no part of a file."""


def give_back(file: int, start: int, end: int) -> None:
    """Let a part of a file be zeros that need no room.

    Raises:
        CannotShorten: not on this file system.
        OSError: it cannot be written.
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


def give_back_handed_on(file: int, handed_on: int, *, gone: int) -> int:
    """Give back what a reader has taken of a file from its beginning on, but for the last part.

    Args:
        handed_on: so many bytes are elsewhere.
        gone: so many were given back before.

    Return how many are gone now; where the file system gives back none, they are counted as gone.
    """
    end = handed_on - KEPT_BYTES
    if end - gone < AT_ONCE:
        return gone
    with suppress(CannotShorten, OSError):
        give_back(file, gone, end)
    return end
