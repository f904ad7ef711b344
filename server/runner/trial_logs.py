"""The folders of trials' attempts, and the size of the logs in them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import structlog

from evaluators.adapter.log import InformativeLines
from evaluators.cluster import profile_from_dict
from evaluators.log_limit import CannotShorten, LogLimit
from evaluators.trial import LOG
from server.logs import BYTES_PER_MB
from server.settings import Settings

EVERY_S = 2.0
ATTEMPT = "attempt-"
"""How the folder of an attempt is named, in its trial's, before its number."""

log = structlog.get_logger(__name__)


class LogThread:
    """Shortens the logs of all campaigns of a runner, in a thread, since a long one takes
    seconds."""

    def __init__(self) -> None:
        self._wanted: SimpleQueue[tuple[LogLimit, Sequence[Path], bool]] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="trial-logs", daemon=True)
        self._hopeless = False

    def want(self, limit: LogLimit, folders: Sequence[Path], *, ended: bool) -> None:
        """Queue the logs in trials' folders for shortening: for the last time if the trials have
        `ended`."""
        if self._hopeless or not folders:
            return
        if not self._thread.is_alive():
            self._thread.start()
        self._wanted.put((limit, folders, ended))

    @property
    def is_behind(self) -> bool:
        """Return whether the last request is still in progress."""
        return not self._wanted.empty()

    def _work(self) -> None:
        while not self._hopeless:
            limit, folders, ended = self._wanted.get()
            for folder in folders:
                for place in (folder, *attempt_folders(folder)):
                    self._shorten(limit, place / LOG, ended=ended)

    def _shorten(self, limit: LogLimit, path: Path, *, ended: bool) -> None:
        try:
            while limit.shorten(path) and ended:
                pass
        except FileNotFoundError:
            pass
        except CannotShorten as error:
            self._hopeless = True
            log.warning("log_not_shortened", file=str(path), error=str(error))
        except OSError as error:
            log.warning("log_not_shortened", file=str(path), error=str(error))
        if ended:
            limit.forget(path)


class TrialLogs:
    """The logs of one campaign, wherever its trials run: their folders are visible here.

    Args:
        profile: as stored with the campaign; its adapter determines which lines are informative.
    """

    def __init__(
        self, settings: Settings, thread: LogThread, *, profile: Mapping[str, Any] | None
    ) -> None:
        self._settings = settings
        self._thread = thread
        adapter = profile_from_dict(profile, source="campaign").adapter if profile else None
        self._limit = LogLimit(
            kept_bytes=int(settings.trial_log_mb * BYTES_PER_MB),
            is_informative=InformativeLines(adapter.read) if adapter else None,
        )
        self._next_look = 0.0

    def limit(self, tokens: Iterable[str]) -> None:
        """Shorten the logs of running trials, if it is time to."""
        if time.monotonic() >= self._next_look and not self._thread.is_behind:
            self._next_look = time.monotonic() + EVERY_S
            self._thread.want(self._limit, self._folders(tokens), ended=False)

    def finish(self, tokens: Iterable[str]) -> None:
        """Shorten the logs of ended trials."""
        self._thread.want(self._limit, self._folders(tokens), ended=True)

    def _folders(self, tokens: Iterable[str]) -> Sequence[Path]:
        return [self._settings.trial_dir(token) for token in tokens]


def attempt_folder(directory: Path, number: int) -> Path:
    """Return the folder of one attempt of the trial in `directory`."""
    return directory / f"{ATTEMPT}{number}"


def attempt_folders(directory: Path) -> list[Path]:
    """Return the existing attempt folders, in order."""
    found = directory.glob(f"{ATTEMPT}[1-9]*")
    return sorted(found, key=lambda folder: int(folder.name.removeprefix(ATTEMPT)))
