"""What the service works on now."""

from __future__ import annotations

from fastapi import APIRouter

from autotune.schemas import Activity
from server.api.dependencies import StoreOf, problems
from server.auth.permissions import CallerOf
from server.store.activity import activity

router = APIRouter(tags=["activity"])


@router.get("/activity", responses=problems())
def read(store: StoreOf, caller: CallerOf) -> Activity:
    """Return what runs where, and who waits for what: runners, trials that have not ended, and
    campaigns that do not rest for good, as far as the caller sees them."""
    with store.session() as session:
        return activity(session, caller.sees)
