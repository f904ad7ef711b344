"""A client of an application in this process, which knows the service's token."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.testclient import TestClient

ADDRESS = "http://127.0.0.1"


def entitled(app: FastAPI) -> TestClient:
    headers = {"Authorization": f"Bearer {app.state.authenticator.token}"}
    return TestClient(app, base_url=ADDRESS, headers=headers)
