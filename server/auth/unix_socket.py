"""Unix sockets that only the service's own user can open."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from autotune.client.known_services import known_folder
from search_spaces.errors import InvalidInput

NAME = "service.sock"
BACKLOG = 128


class NoSocketThere(InvalidInput):
    """The path is too long, or the file system has no sockets."""


@contextmanager
def own_socket(data_dir: Path) -> Iterator[socket.socket]:
    """Yield the listening socket of a data folder, for this user only.

    If no socket can be created there, it is in the folder of this user's service records, under a
    name that is the same at every start.
    """
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    with ExitStack() as stack:
        try:
            bound = stack.enter_context(listening_unix_socket(data_dir / NAME))
        except NoSocketThere:
            known_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
            elsewhere = known_folder() / f"{digest}.sock"
            bound = stack.enter_context(listening_unix_socket(elsewhere))
        yield bound


@contextmanager
def listening_unix_socket(path: Path) -> Iterator[socket.socket]:
    """Yield a socket that listens at a path, for this user only; the socket of a killed service is
    replaced.

    Raises:
        NoSocketThere: no socket can be created there.
        InvalidInput: another process listens there.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
        try:
            if _answers(path):
                raise InvalidInput("socket", str(path), "something listens there already")
            if path.is_socket():
                path.unlink()
            before = os.umask(0o177)
            try:
                bound.bind(str(path))
            finally:
                os.umask(before)
            bound.listen(BACKLOG)
        except OSError as error:
            reason = f"no socket can be made there: {error.strerror or error}"
            valid = "a path of at most 107 bytes, in a folder that this user may write"
            raise NoSocketThere("socket", str(path), reason, valid=valid) from error
        try:
            yield bound
        finally:
            path.unlink(missing_ok=True)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0
