"""Notices sent while a service runs, and the channels for them from the operator's settings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog
from prometheus_client import Counter

from server.logs import withhold
from server.periodic import PeriodicTask
from server.settings import Settings
from server.store import Store
from server.store.campaigns import RECIPIENTS
from server.store.notices import DueNotice, due_notices, settle_notice

if TYPE_CHECKING:
    from server.notices.delivery import MailServer, Webhook

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


class NotDelivered(Exception):
    """The notice was not delivered, or delivery was not confirmed; it may be retried."""


@dataclass(frozen=True, kw_only=True)
class NoticeChannels:
    """The channels of one service.

    Attributes:
        operators: addresses notified about all campaigns except private ones.
        url: the service's address for users.
    """

    webhook: Webhook | None
    mail: MailServer | None
    operators: tuple[str, ...]
    url: str

    @classmethod
    def of(cls, settings: Settings, *, url: str) -> NoticeChannels:
        """Return the channels in the settings, with their secrets read; raises InvalidInput."""
        webhook = mail = None
        if settings.notice_webhook_url:
            from server.notices.delivery import Webhook

            address = settings.referenced("notice_webhook_url")
            secret = settings.referenced("notice_webhook_secret")
            for each in (address, secret):
                withhold(each)
            webhook = Webhook.of(address, secret)
        if settings.notice_smtp:
            from server.notices.delivery import PORTS, MailServer

            password = settings.referenced("notice_smtp_password")
            withhold(password)
            host, _, port = settings.notice_smtp.partition(":")
            security = settings.notice_smtp_security
            mail = MailServer(
                host=host,
                port=int(port) if port else PORTS[security],
                security=security,
                user=settings.notice_smtp_user,
                password=password,
                sender=settings.notice_from,
            )
        return cls(
            webhook=webhook,
            mail=mail,
            operators=settings.notice_to,
            url=settings.public_url or url,
        )

    def tell(self, who: str, notice: DueNotice) -> bool:
        """Send a notice of one of `server.store.campaigns.RECIPIENTS`; return whether there was a
        recipient.

        Private campaigns are not sent to the webhook, whose readers may not be allowed to see them.

        Raises:
            NotDelivered: a recipient was not reached.
        """
        if who == "owner":
            return self._mail(notice, (notice.owner_address,) if notice.owner_address else ())
        if notice.campaign.private and notice.campaign.owner is not None:
            return False
        if who == "operators":
            return self._mail(notice, self.operators)
        if self.webhook is None:
            return False
        self.webhook.send(notice, url=self.url)
        return True

    def _mail(self, notice: DueNotice, to: tuple[str, ...]) -> bool:
        if self.mail is None or not to:
            return False
        self.mail.send(notice, to, url=self.url)
        return True


class NoticeSender(PeriodicTask):
    """Sends due notices from `start` to `stop`, in a thread.

    `stop` with a timeout does not wait for a slow recipient.

    If the service is killed after sending a notice and before recording it, the notice is sent
    again with the same id.
    """

    def __init__(self, store: Store, channels: NoticeChannels, *, every_s: float = EVERY_S) -> None:
        self._store = store
        self._channels = channels
        super().__init__("notices", lambda: self.send_due(datetime.now(UTC)), every_s=every_s)

    def send_due(self, now: datetime) -> None:
        """Send the notices that are due, and record the recipients that could not be reached.

        Raises:
            SQLAlchemyError: the database does not respond.
            DatabaseReplaced: the database is a different one.
        """
        with self._store.session() as session:
            due = due_notices(session, now=now, limit=AT_ONCE)
        for notice in due:
            if self.stopping.is_set():
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
