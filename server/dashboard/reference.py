"""The API reference: Swagger UI, served from this service's own files."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles

from server.dashboard.rendering import render

SWAGGER_UI = Path(str(files("fastapi_offline"))) / "static"
"""The package serves an application of its own; only its copy of Swagger UI is used."""
POLICY = "Content-Security-Policy"
ICONS = "; img-src 'self' data:"
"""Swagger UI's stylesheet embeds its icons."""

router = APIRouter()


@router.get("/reference")
def page(request: Request) -> Response:
    answer = render(request, "reference.html", {"here": "reference"})
    answer.headers[POLICY] += ICONS
    return answer


def mount_reader(app: FastAPI) -> None:
    app.mount("/reference/reader", StaticFiles(directory=SWAGGER_UI), name="reader")
