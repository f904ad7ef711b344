"""Logs of the service and its runners: one line per event, in rotated files, without secrets."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from itertools import count
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Literal

import structlog

from server.data_folder import closed_folder
from server.settings import Settings

OURS = ("server", "evaluators")
"""Packages that log at the configured level; others log warnings."""

MOST_BYTES = 20 * 10**6
"""Size at which a log is rotated."""
FILES = 5
"""Logs that are kept, of the service and of each runner."""
SECRETS = re.compile(
    r"(?<=[?&]key=)[\w-]+"  # sign-in key of a browser
    r"|(?<=Bearer )[\w.~+/=-]+"
    r"|(?<=://)[^\s:/@]+:[^\s/@]+(?=@)"  # name and password in a URL
    r"|(?<=\.)[A-Za-z0-9_-]{43}(?![\w-])"  # the secret of a user's token
)
HIDDEN = "***"
_withheld: set[str] = set()


def withhold(secret: str) -> None:
    if secret:
        _withheld.add(secret)


def without_secrets(line: str) -> str:
    for secret in _withheld:
        line = line.replace(secret, HIDDEN)
    return SECRETS.sub(HIDDEN, line)


def configure(settings: Settings, program: Literal["service", "runner"], *, terminal: bool) -> None:
    """Configure logging to `<program>.log` in the data folder and to standard error.

    A service logs only warnings to standard error in the text format, and everything in JSON.

    Args:
        terminal: whether standard error is read by a user. Otherwise it is redirected into the
            file, with the output of libraries.
    """
    level = logging.getLevelNamesMapping()[settings.log_level]
    file = RotatingLog(
        free_log(closed_folder(settings.data_dir), program),
        most_bytes=MOST_BYTES,
        files=FILES,
        takes_output=not terminal,
    )
    handlers: list[logging.Handler] = [file]
    if terminal:
        stream = logging.StreamHandler(sys.stderr)
        if program == "service" and settings.log_format == "text":
            stream.setLevel(logging.WARNING)
        handlers.append(stream)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    for handler in handlers:
        handler.setFormatter(LineFormatter(settings.log_format, shared))
    logging.basicConfig(handlers=handlers, level=max(level, logging.WARNING), force=True)
    for name in OURS:
        logging.getLogger(name).setLevel(level)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


class LineFormatter(structlog.stdlib.ProcessorFormatter):
    """Formats a line as text or JSON, with full tracebacks."""

    def __init__(
        self, form: Literal["text", "json"], before: list[structlog.typing.Processor]
    ) -> None:
        text: list[structlog.typing.Processor] = [
            structlog.dev.ConsoleRenderer(
                colors=False, exception_formatter=structlog.dev.plain_traceback
            )
        ]
        json: list[structlog.typing.Processor] = [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ]
        drop = structlog.stdlib.ProcessorFormatter.remove_processors_meta
        super().__init__(
            foreign_pre_chain=before, processors=[drop, *(json if form == "json" else text)]
        )

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class RotatingLog(RotatingFileHandler):
    """A log for this user only that is rotated at `most_bytes` to `.1`, `.2` and so on, with
    `files` files in total.

    Args:
        takes_output: redirect standard output and error into it, also after a rotation.
    """

    def __init__(self, path: Path, *, most_bytes: int, files: int, takes_output: bool) -> None:
        self._takes_output = takes_output
        super().__init__(path, maxBytes=most_bytes, backupCount=files - 1, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if self._takes_output:
            for standard in (1, 2):
                os.dup2(descriptor, standard)
        return open(descriptor, "a", encoding=self.encoding)


def free_log(folder: Path, program: str) -> Path:
    """Return a log file that no other process writes, because two could not both rotate it. Several
    runners may share a data folder."""
    for path in _names(folder, program):
        lock = os.open(path.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        except OSError:  # a file system without locks
            return path
        else:
            _locks.append(lock)
            return path
    raise AssertionError("names do not end")


_locks: list[int] = []
"""Open file descriptors of locks, held until this process ends."""


def _names(folder: Path, program: str) -> Iterator[Path]:
    yield folder / f"{program}.log"
    for number in count(2):
        yield folder / f"{program}-{number}.log"
