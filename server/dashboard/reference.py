"""The reference of the API: Swagger UI, from this service's own files."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles

from server.dashboard.rendering import render

SWAGGER_UI = Path(str(files("fastapi_offline"))) / "static"
"""The package serves its own application; its copy of Swagger UI is what is needed of it."""
POLICY = "Content-Security-Policy"
ICONS = "; img-src 'self' data:"
"""Swagger UI's stylesheet holds its icons."""

router = APIRouter()


@router.get("/reference")
def page(request: Request) -> Response:
    answer = render(request, "reference.html", {"here": "reference"})
    answer.headers[POLICY] += ICONS
    return answer


def mount_reader(app: FastAPI) -> None:
    """Add the files of Swagger UI to the service."""
    app.mount("/reference/reader", StaticFiles(directory=SWAGGER_UI), name="reader")
