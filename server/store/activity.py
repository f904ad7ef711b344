"""What the service works on now, and how many campaigns and trials it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from sqlalchemy import Row, Select, case, func, select
from sqlalchemy.orm import Session

from autotune.schemas.activity import Activity, CampaignActivity, RunnerActivity, TrialActivity
from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.shapes import StrategyShape
from server.store.campaigns import RESTING, WORKED_ON
from server.store.leases import is_free, process_of
from server.store.record import record_of
from server.store.tables import CampaignRow, TrialRow

MOST_TRIALS = 1000
NOT_CLAIMED = "no runner works on it (`autotune serve` or `autotune runner` starts one)"
NOT_BEGUN = "its runner is choosing the next trial"


Found = Row[int, str, str, str, str, str | None, bool, str | None]


class Sees(Protocol):
    """Returns whether the caller may see a campaign."""

    def __call__(self, *, owner: str | None, private: bool) -> bool: ...


def all_seen(*, owner: str | None, private: bool) -> bool:  # noqa: ARG001
    return True


def activity(session: Session, sees: Sees = all_seen) -> Activity:
    """Return the runners, the pending trials and the unfinished campaigns.

    Args:
        sees: only campaigns that it allows are included.
    """
    query = select(
        CampaignRow.id,
        CampaignRow.name,
        CampaignRow.state,
        CampaignRow.reason,
        CampaignRow.evaluator,
        CampaignRow.owner,
        CampaignRow.private,
        case((is_free(), None), else_=CampaignRow.lease_owner).label("holder"),
    ).where(CampaignRow.id.in_(_open()))
    found = session.execute(query.order_by(CampaignRow.id)).all()
    rows = [row for row in found if sees(owner=row.owner, private=row.private)]
    seen = {row.id for row in rows}
    counts = _counts(session)
    reasons = _reasons(session)
    return Activity(
        runners=_runners(rows),
        trials=_trials(session, {row.id for row in found} - seen),
        campaigns=[
            _campaign(row, counts, reasons.get(row.id, ""))
            for row in rows
            if row.state not in RESTING
        ],
    )


def _runners(rows: Iterable[Found]) -> list[RunnerActivity]:
    held: dict[str, list[int]] = {}
    for row in rows:
        if row.holder:
            held.setdefault(row.holder, []).append(row.id)
    return [
        RunnerActivity(host=host, pid=pid, campaigns=campaigns)
        for (host, pid), campaigns in ((process_of(each), ids) for each, ids in held.items())
    ]


def _counts(session: Session) -> Mapping[tuple[int, bool], int]:
    """Return the number of each campaign's pending trials, by whether they run."""
    query = select(TrialRow.campaign_id, TrialRow.phase, func.count()).where(
        TrialRow.campaign_id.in_(_open()), TrialRow.state == TrialState.PENDING
    )
    counts: Counter[tuple[int, bool]] = Counter()
    for campaign_id, phase, number in session.execute(
        query.group_by(TrialRow.campaign_id, TrialRow.phase)
    ):
        counts[campaign_id, phase == "running"] += number
    return counts


def _reasons(session: Session) -> dict[int, str]:
    """Return the reason for which most of a campaign's trials wait, for each campaign."""
    query = (
        select(TrialRow.campaign_id, TrialRow.phase_reason, func.count().label("number"))
        .where(
            TrialRow.campaign_id.in_(_open()),
            TrialRow.state == TrialState.PENDING,
            TrialRow.phase == "waiting",
            TrialRow.phase_reason != "",
        )
        .group_by(TrialRow.campaign_id, TrialRow.phase_reason)
        .order_by("number")
    )
    return {row.campaign_id: row.phase_reason for row in session.execute(query)}


def _trials(session: Session, hidden: Collection[int]) -> list[TrialActivity]:
    runs_first = case((TrialRow.phase == "running", 0), else_=1)
    query = (
        select(TrialRow, CampaignRow.evaluator)
        .join(CampaignRow, CampaignRow.id == TrialRow.campaign_id)
        .where(TrialRow.campaign_id.in_(_open()), TrialRow.state == TrialState.PENDING)
        .order_by(runs_first, TrialRow.campaign_id, TrialRow.number)
        .limit(MOST_TRIALS)
    )
    if hidden:
        query = query.where(TrialRow.campaign_id.not_in(hidden))
    now = datetime.now(UTC)
    return [
        record_of(
            TrialActivity,
            row,
            evaluator=evaluator,
            strategy=StrategyShape.model_validate(row.strategy),
            phase=row.phase or "created",
            reason=row.phase_reason,
            age_s=round(max(0.0, (now - row.created_at).total_seconds()), 1),
        )
        for row, evaluator in session.execute(query)
    ]


def _open() -> Select[int]:
    """Return the campaigns that may have pending trials, few in the index."""
    return select(CampaignRow.id).where(
        CampaignRow.state.not_in(RESTING) | CampaignRow.lease_owner.is_not(None)
    )


def _campaign(
    row: Found,
    counts: Mapping[tuple[int, bool], int],
    reason: str,
) -> CampaignActivity:
    running, waiting = counts.get((row.id, True), 0), counts.get((row.id, False), 0)
    waits_for = ""
    if not running:
        own = row.reason if row.state in (CampaignState.QUEUED, CampaignState.PAUSED) else ""
        worked_on = row.state in WORKED_ON and row.holder is None
        waits_for = own or reason or (NOT_CLAIMED if worked_on else NOT_BEGUN)
    return CampaignActivity.model_validate(
        {
            "id": row.id,
            "name": row.name,
            "state": row.state,
            "evaluator": row.evaluator,
            "runner": row.holder and "{}:{}".format(*process_of(row.holder)),
            "running": running,
            "waiting": waiting,
            "waits_for": waits_for,
        }
    )


@dataclass(frozen=True, kw_only=True)
class ServiceCounts:
    """Numbers of all campaigns and trials by evaluator and state. Pending trials are counted by
    phase, or as `created` without one."""

    campaigns: Mapping[tuple[str, str], int]
    trials: Mapping[tuple[str, str], int]


def service_counts(session: Session) -> ServiceCounts:
    """Return the counts as of now. Trials are counted in an index: 250,000 take 70 ms."""
    campaigns = select(CampaignRow.evaluator, CampaignRow.state, func.count())
    of_campaigns = campaigns.group_by(CampaignRow.evaluator, CampaignRow.state)
    kind = (TrialRow.campaign_id, TrialRow.state, TrialRow.phase)
    # Summed by campaign first: the index has that order, and fewer rows are joined.
    sums = select(*kind, func.count().label("number")).group_by(*kind).subquery()
    joined = select(CampaignRow.evaluator, sums.c.state, sums.c.phase).add_columns(
        func.sum(sums.c.number)
    )
    of_trials = joined.join(sums, sums.c.campaign_id == CampaignRow.id).group_by(
        CampaignRow.evaluator, sums.c.state, sums.c.phase
    )
    trials: Counter[tuple[str, str]] = Counter()
    for evaluator, state, phase, number in session.execute(of_trials):
        trials[evaluator, (phase or "created") if state == "pending" else state] += int(number)
    return ServiceCounts(
        campaigns={(row[0], row[1]): row[2] for row in session.execute(of_campaigns)},
        trials=trials,
    )
