"""The whole service in one process and a child: web server and runner on one database."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack, closing

from server.app import create_app
from server.runner.supervisor import RunnerSupervisor
from server.settings import Settings
from server.store import Store
from server.store.ownership import ownership
from server.web import WebServer


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
        InvalidInput: the database's URL is not one.
    """
    with ExitStack() as held:
        store = held.enter_context(closing(Store(settings.url)))
        held.enter_context(ownership(store, "serve"))
        app = create_app(settings)
        if with_runner:
            runner = RunnerSupervisor(settings)
            runner.start()
            held.callback(runner.stop)
        ready(
            f"autotune serves at {address(settings)}  (data: {settings.data_dir}; Ctrl-C ends it)"
        )
        WebServer(app, settings).run(sockets=[bound])


def address(settings: Settings) -> str:
    """Where a browser on this machine finds the pages."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"
