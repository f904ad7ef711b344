"""Notices sent while a service runs."""

from __future__ import annotations

from datetime import UTC, datetime

import structlog
from prometheus_client import Counter

from server.notices.channels import NotDelivered, NoticeChannels
from server.periodic import PeriodicTask
from server.store import Store
from server.store.campaigns import RECIPIENTS
from server.store.notices import DueNotice, due_notices, settle_notice

EVERY_S = 2.0
AT_ONCE = 20
"""Maximum notices sent before those that have become due since are read."""
STOP_TIMEOUT_S = 2.0
SENT = Counter("autotune_notices_sent_total", "Notices sent.", ["to"], registry=None)
FAILURES = Counter(
    "autotune_notice_failures_total",
    "Attempts to send a notice that failed; it is tried again for a day.",
    ["to"],
    registry=None,
)
GIVEN_UP = Counter(
    "autotune_notices_given_up_total",
    "Notices that could not be sent for a day.",
    ["to"],
    registry=None,
)
for _counter in (SENT, FAILURES, GIVEN_UP):
    for _who in RECIPIENTS:
        _counter.labels(_who)  # starts at 0, or `increase` would miss the first one
log = structlog.get_logger(__name__)


class NoticeSender:
    """Sends due notices from `start` to `stop`, in a thread.

    If the service is killed after sending a notice and before recording it, the notice is sent
    again with the same id.
    """

    def __init__(self, store: Store, channels: NoticeChannels, *, every_s: float = EVERY_S) -> None:
        self._store = store
        self._channels = channels
        self._task = PeriodicTask(
            "notices", lambda: self.send_due(datetime.now(UTC)), every_s=every_s
        )

    def start(self) -> None:
        self._task.start()

    def stop(self) -> None:
        """Stop; a slow recipient is not waited for."""
        self._task.stop(timeout_s=STOP_TIMEOUT_S)

    def send_due(self, now: datetime) -> None:
        """Send the notices that are due, and record the recipients that could not be reached.

        Raises:
            SQLAlchemyError: the database does not respond.
            DatabaseReplaced: the database is a different one.
        """
        with self._store.session() as session:
            due = due_notices(session, now=now, limit=AT_ONCE)
        for notice in due:
            if self._task.stopping.is_set():
                return
            left = [who for who in notice.left if not self._is_settled(who, notice, now)]
            with self._store.transaction() as session:
                settle_notice(session, notice, left=left, now=now)

    def _is_settled(self, who: str, notice: DueNotice, now: datetime) -> bool:
        """Notify one recipient; return whether nothing is left to do, because it was sent or given
        up."""
        context = {"to": who, "campaign": notice.campaign.id, "notice": notice.key}
        try:
            if self._channels.tell(who, notice):
                SENT.labels(who).inc()
                log.info("notice_sent", **context)
        except NotDelivered as error:
            FAILURES.labels(who).inc()
            log.warning("notice_failed", error=str(error), attempt=notice.attempts + 1, **context)
            if not notice.is_given_up(now):
                return False
            GIVEN_UP.labels(who).inc()
            log.error("notice_given_up", **context)
        return True
