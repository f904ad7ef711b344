"""The HTTP server of `autotune serve`."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI

from server.settings import Settings

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
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.app.state.stopping.set()
        await super().shutdown(sockets)
