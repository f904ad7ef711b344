"""What the service works on now, and how many campaigns and trials it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from sqlalchemy import Row, Select, case, func, select
from sqlalchemy.orm import Session

from autotune.schemas.activity import Activity, CampaignActivity, RunnerActivity, TrialActivity
from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.shapes import StrategyShape
from server.store.campaigns import RESTING, WORKED_ON
from server.store.record import record_of
from server.store.runners import KnownRunner, known_runners
from server.store.tables import CampaignRow, TrialRow

MOST_TRIALS = 1000
NO_RUNNER = "no runner works on it; start one with `autotune serve` or `autotune runner`"
NOT_CLAIMED = "no runner has taken it yet"
NOT_BEGUN = "its runner is choosing the next trial"


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
    runners = known_runners(session)
    query = select(
        CampaignRow.id,
        CampaignRow.name,
        CampaignRow.state,
        CampaignRow.reason,
        CampaignRow.evaluator,
        CampaignRow.owner,
        CampaignRow.private,
    ).where(CampaignRow.id.in_(_open()))
    found = session.execute(query.order_by(CampaignRow.id)).all()
    rows = [row for row in found if sees(owner=row.owner, private=row.private)]
    seen = {row.id for row in rows}
    counts = _counts(session)
    reasons = _reasons(session)
    return Activity(
        runners=[_runner(runner, seen) for runner in runners],
        trials=_trials(session, {row.id for row in found} - seen),
        campaigns=[
            _campaign(row, runners, counts, reasons.get(row.id, ""))
            for row in rows
            if row.state not in RESTING
        ],
    )


def _runner(runner: KnownRunner, seen: Collection[int]) -> RunnerActivity:
    return RunnerActivity(
        host=runner.host,
        pid=runner.pid,
        version=runner.version,
        started_at=runner.started_at,
        silent_s=round(runner.silent_s, 1),
        campaigns=[campaign_id for campaign_id in runner.campaigns if campaign_id in seen],
    )


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
    row: Row[int, str, str, str, str, str | None, bool],
    runners: Sequence[KnownRunner],
    counts: Mapping[tuple[int, bool], int],
    reason: str,
) -> CampaignActivity:
    holder = next((each for each in runners if row.id in each.campaigns), None)
    running, waiting = counts.get((row.id, True), 0), counts.get((row.id, False), 0)
    waits_for = ""
    if not running:
        unclaimed = NOT_CLAIMED if any(each.works for each in runners) else NO_RUNNER
        own = row.reason if row.state in (CampaignState.QUEUED, CampaignState.PAUSED) else ""
        worked_on = row.state in WORKED_ON and holder is None
        waits_for = own or reason or (unclaimed if worked_on else NOT_BEGUN)
    return CampaignActivity.model_validate(
        {
            "id": row.id,
            "name": row.name,
            "state": row.state,
            "evaluator": row.evaluator,
            "runner": f"{holder.host}:{holder.pid}" if holder else None,
            "running": running,
            "waiting": waiting,
            "waits_for": waits_for,
        }
    )


@dataclass(frozen=True, kw_only=True)
class ServiceCounts:
    """Numbers of all campaigns and trials by evaluator and state, and node-hours of ended trials by
    evaluator. Pending trials are counted by phase, or as `created` without one."""

    campaigns: Mapping[tuple[str, str], int]
    trials: Mapping[tuple[str, str], int]
    node_hours: Mapping[str, float]


def service_counts(session: Session) -> ServiceCounts:
    """Return the counts as of now. Trials are counted in an index: 250,000 take 70 ms."""
    campaigns = select(CampaignRow.evaluator, CampaignRow.state, func.count())
    of_campaigns = campaigns.group_by(CampaignRow.evaluator, CampaignRow.state)
    kind = (TrialRow.campaign_id, TrialRow.state, TrialRow.phase)
    # Summed by campaign first: the index has that order, and fewer rows are joined.
    sums = (
        select(*kind, func.count().label("number"), func.sum(TrialRow.node_hours).label("hours"))
        .group_by(*kind)
        .subquery()
    )
    joined = select(CampaignRow.evaluator, sums.c.state, sums.c.phase).add_columns(
        func.sum(sums.c.number), func.coalesce(func.sum(sums.c.hours), 0.0)
    )
    of_trials = joined.join(sums, sums.c.campaign_id == CampaignRow.id).group_by(
        CampaignRow.evaluator, sums.c.state, sums.c.phase
    )
    trials: Counter[tuple[str, str]] = Counter()
    node_hours = dict.fromkeys(session.scalars(select(CampaignRow.evaluator).distinct()), 0.0)
    for evaluator, state, phase, number, hours in session.execute(of_trials):
        trials[evaluator, (phase or "created") if state == "pending" else state] += int(number)
        node_hours[evaluator] += hours
    return ServiceCounts(
        campaigns={(row[0], row[1]): row[2] for row in session.execute(of_campaigns)},
        trials=trials,
        node_hours=node_hours,
    )
