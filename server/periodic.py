"""A thread that does something at intervals while a service runs."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog
from sqlalchemy.exc import SQLAlchemyError

from server.store import DatabaseReplaced
from server.store.errors import cause

log = structlog.get_logger(__name__)


class PeriodicTask:
    """A daemon thread from `start` to `stop`. Errors of the database are logged, and the action is
    repeated after the next interval.

    Args:
        name: of the thread, and of the log lines.
    """

    def __init__(self, name: str, action: Callable[[], None], *, every_s: float) -> None:
        self.stopping = threading.Event()
        self._action = action
        self._every_s = every_s
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, timeout_s: float | None = None) -> None:
        self.stopping.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self.stopping.wait(self._every_s):
            try:
                self._action()
            except (SQLAlchemyError, DatabaseReplaced) as error:
                log.warning("periodic_task_failed", task=self._thread.name, error=cause(error))
