"""A client of an application in this process, which knows the service's token."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.testclient import TestClient

from autotune.client.credentials import TokenAuth

ADDRESS = "http://127.0.0.1"


def entitled(app: FastAPI) -> TestClient:
    """As a user's own client: each request has its credential, each answer is held to its proof."""
    client = TestClient(app, base_url=ADDRESS)
    client.auth = TokenAuth(lambda: app.state.access.token, audience="127.0.0.1:80", url=ADDRESS)
    return client
