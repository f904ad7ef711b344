"""The whole service in one process and a child: web server and runner on one database."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial

import uvicorn
from fastapi import FastAPI

from server.app import create_app
from server.connections import BoundedConnection
from server.runner.supervisor import RunnerSupervisor
from server.settings import Settings
from server.store import Store
from server.store.ownership import ownership

GRACE_S = 5


class WebServer(uvicorn.Server):
    """Uvicorn that ends event streams before it waits for open answers; `run()` serves."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        self.app = app
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            log_level="warning",
            timeout_graceful_shutdown=GRACE_S,
            http=partial(BoundedConnection, limit_s=settings.request_limit_s),  # type: ignore[arg-type]
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.app.state.stopping.set()
        await super().shutdown(sockets)


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
    with ExitStack() as resources:
        store = resources.enter_context(closing(Store(settings.url)))
        resources.enter_context(ownership(store, "serve"))
        app = create_app(settings)
        if with_runner:
            runner = RunnerSupervisor(settings)
            runner.start()
            resources.callback(runner.stop)
        ready(
            f"autotune serves at {address(settings)}  (data: {settings.data_dir}; Ctrl-C ends it)"
        )
        # What stands by now stays: looked through with all else, it would stop everybody's answers.
        gc.collect()
        gc.freeze()
        WebServer(app, settings).run(sockets=[bound])


def address(settings: Settings) -> str:
    """Return where a browser on this machine finds the pages."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"
