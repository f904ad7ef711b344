"""Atomic writes, and detection of file system failures.

It is in this package because the client library, which may import neither evaluators nor server,
stores artefacts with it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from uuid import uuid4

OUT_OF_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
FAILING = OUT_OF_ROOM | {errno.EROFS, errno.EIO, errno.ESTALE}
"""Errors of a file system that is full, read-only or does not answer, which may pass."""


def write_whole(
    path: Path,
    content: str | bytes,
    *,
    executable: bool = False,
    durable: bool = False,
    private: bool = False,
) -> Path:
    """Write to a temporary file next to `path`, then rename; return `path`. Text is encoded as
    UTF-8.

    Readers see the old or the new content, never a partial one, and several writers may write one
    file at once. A `durable` file is synchronised to disk. A `private` one is for this user only
    (0600).

    Raises:
        OSError: the file cannot be written, for instance on a full disk; nothing of it is left.
    """
    partial = path.with_name(f".{path.name}.{uuid4().hex}.partial")
    # The user's umask decides what of these permissions remains.
    permissions = 0o600 if private else 0o777 if executable else 0o666
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, permissions)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return path


def is_file_system_failure(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in FAILING


def raise_if_failing(error: OSError) -> None:
    """Raise an error of a failing file system, which says nothing about the file; return for other
    errors, such as a missing file."""
    if is_file_system_failure(error):
        raise error
