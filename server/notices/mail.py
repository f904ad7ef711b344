"""E-mail through the operator's mail server."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Literal

from server.notices.notice_text import NotDelivered, subject, text
from server.store.notices import DueNotice

Security = Literal["starttls", "tls", "none"]
PORTS: dict[Security, int] = {"starttls": 587, "tls": 465, "none": 25}
TIMEOUT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class MailServer:
    """A mail server, with credentials.

    Attributes:
        security: `STARTTLS`, TLS from the start, or none; with TLS the server's certificate is
            verified.
        password: of `user`; both are empty without authentication.
    """

    host: str
    port: int
    security: Security
    user: str
    password: str
    sender: str

    def send(self, notice: DueNotice, to: Sequence[str], *, url: str) -> None:
        """Send a notice to some addresses.

        Raises:
            NotDelivered: the mail server rejected it for an address, or cannot be reached.
        """
        message = EmailMessage()
        message["Subject"] = f"autotune: {subject(notice)}"
        message["From"] = self.sender
        message["To"] = ", ".join(to)
        message["Date"] = notice.at
        message["Message-ID"] = f"<{notice.key}@autotune.invalid>"
        message["Auto-Submitted"] = "auto-generated"  # suppress automatic replies
        message.set_content(text(notice, url=url))
        try:
            with self._session() as session:
                refused = session.send_message(message, from_addr=self.sender, to_addrs=list(to))
        except (OSError, smtplib.SMTPException) as error:
            raise NotDelivered(f"{type(error).__name__}: {error}") from None
        if refused:
            raise NotDelivered("the mail server refused some of the addresses")

    @contextmanager
    def _session(self) -> Iterator[smtplib.SMTP]:
        context = ssl.create_default_context()
        if self.security == "tls":
            connecting: smtplib.SMTP = smtplib.SMTP_SSL(
                self.host, self.port, timeout=TIMEOUT_S, context=context
            )
        else:
            connecting = smtplib.SMTP(self.host, self.port, timeout=TIMEOUT_S)
        with connecting as session:
            if self.security == "starttls":
                session.starttls(context=context)
            if self.user:
                session.login(self.user, self.password)
            yield session
