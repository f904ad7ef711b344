"""The channels for notices, and their recipients, from the operator's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.logs import withhold
from server.settings import Settings
from server.store.notices import DueNotice

if TYPE_CHECKING:
    from server.notices.delivery import MailServer, Webhook


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
