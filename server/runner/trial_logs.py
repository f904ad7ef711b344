"""The folders of trials' attempts, and the size of their logs."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from evaluators.trial import LOG

ATTEMPT = "attempt-"
"""How the folder of an attempt is named, in its trial's, before its number."""
ROOM_FOR_NOTE = 100
LONGEST_LINE = 64 << 10

log = structlog.get_logger(__name__)


def shorten_logs(directory: Path, *, end_bytes: int) -> None:
    """Keep `end_bytes` at either end of each log of an ended trial."""
    for folder in (directory, *attempt_folders(directory)):
        path = folder / LOG
        try:
            shorten_log(path, end_bytes=end_bytes)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("log_not_shortened", file=str(path), error=str(error))


def shorten_log(path: Path, *, end_bytes: int) -> None:
    """Replace the middle of a log by a line with its size, between whole lines if they are short.

    This needs no room on the disk.

    Raises:
        OSError: the log cannot be read or written.
    """
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size <= 2 * end_bytes + ROOM_FOR_NOTE:
            return
        file.seek(0)
        head = file.read(end_bytes)
        head = head[: head.rfind(b"\n", max(0, end_bytes - LONGEST_LINE)) + 1] or head
        file.seek(size - end_bytes)
        tail = file.read()
        tail = tail[tail.find(b"\n", 0, LONGEST_LINE) + 1 :] or tail
        note = f"[autotune left out {(size - len(head) - len(tail)) / 1e6:.1f} MB here]\n"
        file.seek(len(head))
        file.write(b"" if head.endswith(b"\n") else b"\n")
        file.write(note.encode() + tail)
        file.truncate()


def attempt_folder(directory: Path, number: int) -> Path:
    return directory / f"{ATTEMPT}{number}"


def attempt_folders(directory: Path) -> list[Path]:
    found = directory.glob(f"{ATTEMPT}[1-9]*")
    return sorted(found, key=lambda folder: int(folder.name.removeprefix(ATTEMPT)))
