"""Logs of the service and its runners: a line for each thing that happened, in files that do not
grow without end, and never with a secret in it."""

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
"""Packages whose every line is of interest; of others, warnings are."""

BYTES_PER_MB = 10**6
SECRETS = re.compile(
    r"(?<=[?&]key=)[\w-]+"  # that lets a browser in
    r"|(?<=Bearer )[\w.~+/=-]+"
    r"|(?<=://)[^\s:/@]+:[^\s/@]+(?=@)"  # name and password in an address
    r"|(?<=\.)[A-Za-z0-9_-]{43}(?![\w-])"  # the secret of a user's token, wherever it stands
)
HIDDEN = "***"
_withheld: set[str] = set()


def withhold(secret: str) -> None:
    """Let no line of this process contain this text, whatever it is about."""
    if secret:
        _withheld.add(secret)


def without_secrets(line: str) -> str:
    """Return the line with everything hidden that opens something."""
    for secret in _withheld:
        line = line.replace(secret, HIDDEN)
    return SECRETS.sub(HIDDEN, line)


def configure(settings: Settings, program: Literal["service", "runner"], *, terminal: bool) -> None:
    """Write what happens from now on: into `<program>.log` in the data folder, and to standard
    error.

    A service tells a terminal of warnings alone, as text; all of it as JSON, which a machine reads.

    Args:
        terminal: whether somebody reads this process's standard error. Otherwise that is led into
            the file, too, with whatever is written there by others.
    """
    level = logging.getLevelNamesMapping()[settings.log_level]
    file = RotatingLog(
        free_log(closed_folder(settings.data_dir), program),
        most_bytes=int(settings.log_file_mb * BYTES_PER_MB),
        files=settings.log_files,
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
    """One line for each thing that happened: text for people, or JSON. Tracebacks in full."""

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
    """A file for this user alone that is laid aside when it has grown to `most_bytes`, as `.1`,
    `.2` and so on; of all these, `files` are kept.

    Args:
        takes_output: standard output and error are led into it, also when it is a new one.
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
    """Return the file that this process writes, and no other one while it lives: two would lay it
    aside in each other's way. Several runners may have one data folder."""
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
"""Held until this process ends."""


def _names(folder: Path, program: str) -> Iterator[Path]:
    yield folder / f"{program}.log"
    for number in count(2):
        yield folder / f"{program}-{number}.log"
