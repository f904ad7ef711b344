"""The page with the reference of the API."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from server.api.kept import Kept
from server.dashboard.reference import reference
from server.dashboard.rendering import HEADERS, render

router = APIRouter(prefix="/reference")

KEPT = 4
"""Pages that are kept, one for each name of the service: each takes a third of a second."""


@router.get("")
def page(request: Request) -> Response:
    """Return the page, which is the same for all who call the service by one name."""
    base_url = str(request.base_url).rstrip("/")
    kept: Kept[bytes] = request.app.state.references

    def rendered() -> bytes:
        told = reference(request.app.openapi(), base_url)
        context = {"here": "reference", "reference": told}
        return bytes(render(request, "reference.html", context).body)

    return HTMLResponse(kept.of(base_url, rendered), headers=HEADERS)
