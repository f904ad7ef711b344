"""The whole service in one process and a child: web server and runner on one database."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from autotune.client.address import FROM_HERE, SOCKET
from autotune.client.service_record import NAME, ServiceRecord, known_path
from server.app import create_app
from server.auth.authentication import OWN_SOCKET, SIGN_IN, Authenticator
from server.auth.encryption import PEER, Encryption
from server.auth.unix_socket import own_socket
from server.connections import BoundedConnection, RequestDeadline
from server.logs import configure, withhold
from server.notices.channels import NoticeChannels
from server.notices.sender import NoticeSender
from server.runner.supervisor import RunnerSupervisor
from server.settings import Settings
from server.store import Store
from server.store.ownership import ownership
from server.waiting_notes import WaitingNotes

GRACE_S = 5
ARENAS = 2
"""Areas from which threads take memory: with one for each of its forty, which is glibc's choice, a
service that many watch holds a tenth more."""
M_ARENA_MAX = -8  # of glibc's malloc.h
log = structlog.get_logger(__name__)


class WebServer(uvicorn.Server):
    """Uvicorn that ends event streams before it waits for open answers; `run()` serves.

    Args:
        own: a socket that listens besides, and that the service's own user alone can open.
    """

    def __init__(
        self, app: FastAPI, settings: Settings, *, own: socket.socket | None = None
    ) -> None:
        self.app = app
        self.own = own
        self.connection = partial(BoundedConnection, limit_s=settings.request_limit_s)
        config = uvicorn.Config(
            _with_peer(app, settings),
            host=settings.host,
            port=settings.port,
            log_config=None,
            access_log=False,  # each request has a line of `server.api.request_record`
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_S,
            http=self.connection,  # type: ignore[arg-type]
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.own is None:
            return
        # By itself: uvicorn would speak TLS here, too, and could not tell who came this way.
        connection = partial(
            self.connection,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state | {OWN_SOCKET: True},
        )
        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_server(connection, sock=self.own))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.app.state.stopping.set()
        await super().shutdown(sockets)


def _with_peer(app: ASGIApp, settings: Settings) -> ASGIApp:
    """Return the service with what a proxy says of a request's origin in the place of the proxy's
    own address, which is kept."""
    inner: Any = RequestDeadline(app)
    trusting: Any = ProxyHeadersMiddleware(inner, trusted_hosts=list(settings.proxy_addresses))

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        scope[PEER] = scope.get("client")
        await trusting(scope, receive, send)

    return noting


def run(
    settings: Settings,
    bound: socket.socket,
    *,
    with_runner: bool,
    ready: Callable[[str], None],
) -> None:
    """Serve on a socket that listens already, until a signal ends it.

    `ready` is told the address once everything is set up.

    Raises:
        InUse: another service has this database.
        InvalidInput: the database's URL is not one, or a secret is not where it is said to be.
    """
    with ExitStack() as resources:
        configure(settings, "service", terminal=True)
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
        store = resources.enter_context(closing(Store(settings.url)))
        resources.enter_context(ownership(store, "serve"))
        app = create_app(settings)
        own = resources.enter_context(own_socket(settings.data_dir))
        channels = NoticeChannels.of(settings, url=address(settings))
        if with_runner:
            runner = RunnerSupervisor(settings)
            runner.start()
            resources.callback(runner.stop)
        waiting = WaitingNotes(store, silent_s=settings.lease_s)
        waiting.start()
        resources.callback(waiting.stop)
        notices = NoticeSender(store, channels)
        notices.start()
        resources.callback(notices.stop)
        authenticator: Authenticator = app.state.authenticator
        withhold(authenticator.token)
        _note_down(settings, own, authenticator.token, resources)
        if Encryption(settings).lacks and settings.insecure_http:
            log.warning("tokens_unencrypted", host=settings.host, allowed_by="insecure_http")
        ready(
            f"autotune serves at {address(settings)}  (data: {settings.data_dir}; Ctrl-C ends it)"
        )
        if not settings.socket:
            key = authenticator.new_key()
            ready(f"for a browser, once: {address(settings)}{SIGN_IN}?key={key}")
        WebServer(app, settings, own=own).run(sockets=[bound])


def _note_down(settings: Settings, bound: socket.socket, token: str, resources: ExitStack) -> None:
    """Write down where the service is and its token, until `resources` end: in the data folder, and
    where this user's programs find a service by its address."""
    record = ServiceRecord(
        url=address(settings),
        socket=bound.getsockname(),
        token=token,
        pid=os.getpid(),
        host=socket.gethostname(),
    )
    own = settings.data_dir / NAME
    record.write(own)
    resources.callback(record.remove, own)
    known = known_path(record.url)
    try:
        record.write(known)
        resources.callback(record.remove, known)
    except OSError as error:
        log.warning("service_not_noted", file=str(known), error=str(error))


def address(settings: Settings) -> str:
    """Return where programs and browsers of this machine find the service."""
    if settings.socket:
        return f"{SOCKET}{settings.socket}"
    host = FROM_HERE.get(settings.host, settings.host)
    host = "127.0.0.1" if host == "localhost" else host
    host = f"[{host}]" if ":" in host else host
    return f"{'https' if settings.tls_cert else 'http'}://{host}:{settings.port}"
