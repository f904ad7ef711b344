"""The service: a web server, with a runner as a child process, on one database."""

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
from uvicorn.protocols.http.h11_impl import H11Protocol

from autotune.client.known_services import FROM_HERE, NAME, SOCKET, ServiceRecord, known_path
from server.app import create_app
from server.auth.authentication import OWN_SOCKET, SIGN_IN, Authenticator
from server.auth.encryption import PEER, Encryption, own_socket
from server.logs import configure, withhold
from server.notices import CampaignNotices
from server.periodic import PeriodicTask
from server.runner.supervisor import RunnerSupervisor
from server.settings import Settings
from server.store import Store
from server.store.ownership import ownership
from server.store.waiting import WaitingNotes

GRACE_S = 5
WAITING_EVERY_S = 2.0
"""Interval at which the reasons of waiting campaigns are updated; longer than a runner needs to
claim one."""
ARENAS = 2
"""Memory arenas of malloc. With one per thread, glibc's default, a service with many viewers takes
a tenth more memory."""
M_ARENA_MAX = -8  # of glibc's malloc.h
STOP_TIMEOUT_S = 2.0
"""How long the service waits for a slow recipient of a notice."""
log = structlog.get_logger(__name__)


class WebServer(uvicorn.Server):
    """Uvicorn that ends event streams before it waits for open responses; `run()` serves.

    Args:
        own: another listening socket, which only the service's own user can open.
    """

    def __init__(
        self, app: FastAPI, settings: Settings, *, own: socket.socket | None = None
    ) -> None:
        self.app = app
        self.own = own
        config = uvicorn.Config(
            _with_peer(app, settings),
            host=settings.host,
            port=settings.port,
            log_config=None,
            access_log=False,  # `server.api.request_record` logs requests
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_S,
            http="h11",
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.own is None:
            return
        # A server of its own: uvicorn would use TLS here, too, and not mark these connections.
        connection = partial(
            H11Protocol,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state | {OWN_SOCKET: True},
        )
        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_server(connection, sock=self.own))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.app.state.stopping.set()
        await super().shutdown(sockets)


def _with_peer(app: Any, settings: Settings) -> ASGIApp:
    """Return the service with the client's address as a trusted proxy reports it; the address of
    the connection is kept as PEER."""
    trusting: Any = ProxyHeadersMiddleware(app, trusted_hosts=list(settings.proxy_addresses))

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
    """Serve on a listening socket until a signal ends the process.

    Args:
        ready: called with the address once everything is set up.

    Raises:
        InUse: another service uses this database.
        InvalidInput: the database's URL is invalid, or a secret cannot be read.
    """
    with ExitStack() as resources:
        configure(settings, "service", terminal=True)
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
        store = resources.enter_context(closing(Store(settings.url)))
        resources.enter_context(ownership(store, "serve"))
        app = create_app(settings)
        own = resources.enter_context(own_socket(settings.data_dir))
        if with_runner:
            runner = RunnerSupervisor(settings)
            runner.start()
            resources.callback(runner.stop)
        waiting = PeriodicTask("waiting-notes", WaitingNotes(store).look, every_s=WAITING_EVERY_S)
        waiting.start()
        resources.callback(waiting.stop)
        if urls := settings.referenced("notice_urls"):
            notices = CampaignNotices(store, urls, url=address(settings))
            notices.start()
            resources.callback(notices.stop, timeout_s=STOP_TIMEOUT_S)
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
    """Return the address of the service on this machine."""
    if settings.socket:
        return f"{SOCKET}{settings.socket}"
    host = FROM_HERE.get(settings.host, settings.host)
    host = "127.0.0.1" if host == "localhost" else host
    host = f"[{host}]" if ":" in host else host
    return f"{'https' if settings.tls_cert else 'http'}://{host}:{settings.port}"
