"""What the service works on now."""

from __future__ import annotations

from fastapi import APIRouter

from autotune.schemas.activity import Activity
from server.api.dependencies import StoreOf, problems
from server.auth.permissions import CallerOf
from server.store.activity import activity

router = APIRouter(tags=["activity"])


@router.get("/activity", responses=problems())
def read(store: StoreOf, caller: CallerOf) -> Activity:
    """Return what runs and what waits: runners, pending trials, and campaigns that have not ended,
    as far as the caller may see them."""
    with store.session() as session:
        return activity(session, caller.sees)
