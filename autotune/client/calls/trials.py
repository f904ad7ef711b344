"""Requests for a campaign's trials."""

from __future__ import annotations

from autotune.client.calls.call import Call, get
from autotune.schemas import Trial, TrialPage


def trials(
    campaign_id: int, *, state: str | None, purpose: str | None, sort: str, cursor: str | None
) -> Call[TrialPage]:
    path = f"/campaigns/{campaign_id}/trials"
    return get(path, TrialPage, state=state, purpose=purpose, sort=sort, cursor=cursor)


def trial(campaign_id: int, number: int) -> Call[Trial]:
    return get(f"/campaigns/{campaign_id}/trials/{number}", Trial)


def log(campaign_id: int, number: int, *, lines: int) -> Call[str]:
    path = f"/campaigns/{campaign_id}/trials/{number}/log"
    return Call(method="GET", path=path, params={"lines": str(lines)}, read=bytes.decode)
