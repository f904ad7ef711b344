"""Trainers' adapters that campaigns may name."""

from __future__ import annotations

from fastapi import APIRouter

from autotune.schemas import AdapterSummary
from server.adapters import adapter_summaries
from server.api.dependencies import SettingsOf, problems

router = APIRouter(prefix="/adapters", tags=["adapters"])


@router.get("", response_description="All adapters.", responses=problems())
def listing(settings: SettingsOf) -> list[AdapterSummary]:
    """List all adapters by name, with what each can vary; one whose file cannot be used says why.
    The commands in their files are not told."""
    return adapter_summaries(settings.adapters_dir)
