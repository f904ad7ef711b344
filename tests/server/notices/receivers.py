"""Who is told, on this machine: a mail server and a web server that keep what they are sent."""

from __future__ import annotations

import base64
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

USER, PASSWORD = "autotune", "a password of the mail server"


class MailBox(socketserver.ThreadingTCPServer):
    """SMTP as RFC 5321 has it, as much as is needed to take a message.

    Attributes:
        certificate: with one, mail is taken after STARTTLS and AUTH PLAIN alone.
        refusing: whether recipients are refused.
        taken: each message with its recipients.
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, certificate: Path | None = None) -> None:
        self.certificate = certificate
        self.refusing = False
        self.taken: list[tuple[list[str], EmailMessage]] = []
        super().__init__(("127.0.0.1", 0), _MailSession)

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _MailSession(socketserver.StreamRequestHandler):
    server: MailBox

    def handle(self) -> None:
        self._secure = self._known = self.server.certificate is None
        self._to: list[str] = []
        self._say("220 mailbox")
        while line := self.rfile.readline().decode().strip():
            verb = line.partition(" ")[0].upper()
            if verb == "QUIT":
                return self._say("221 bye")
            if verb == "STARTTLS":
                try:
                    self._encrypt()
                except ssl.SSLError:  # the client does not believe the certificate
                    return None
            else:
                self._answer(verb, line)
        return None

    def _encrypt(self) -> None:
        self._say("220 go on")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(str(self.server.certificate))
        self.request = self.connection = context.wrap_socket(self.request, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", buffering=0)
        self._secure = True

    def finish(self) -> None:
        super().finish()
        self.connection.close()

    def _answer(self, verb: str, line: str) -> None:
        if verb == "EHLO":
            self._say("250-mailbox", "250 AUTH PLAIN" if self._secure else "250 STARTTLS")
        elif verb == "AUTH":
            given = base64.b64decode(line.split()[2]).decode()
            self._known = self._secure and given == f"\0{USER}\0{PASSWORD}"
            self._say("235 welcome" if self._known else "535 wrong")
        elif verb == "RCPT" and (self.server.refusing or not self._known):
            self._say("550 not for me")
        elif verb == "RCPT":
            self._to.append(line.partition("<")[2].partition(">")[0])
            self._say("250 taken")
        elif verb == "DATA":
            self._say("354 go on")
            lines = iter(self.rfile.readline, b".\r\n")
            message = message_from_bytes(b"".join(lines), policy=policy.default)
            assert isinstance(message, EmailMessage)
            self.server.taken.append((self._to, message))
            self._to = []
            self._say("250 taken")
        else:
            self._say("250 so be it")

    def _say(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())


class Hook(ThreadingHTTPServer):
    """A web server that is posted to.

    Attributes:
        status: how it answers.
        taken: headers and body of each request.
    """

    def __init__(self) -> None:
        self.status = 204
        self.taken: list[tuple[dict[str, str], bytes]] = []
        super().__init__(("127.0.0.1", 0), _HookRequest)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/told"


class _HookRequest(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append(({k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", self.server.url)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def listening(server: socketserver.BaseServer) -> Iterator[None]:
    """Let it answer until the end."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
