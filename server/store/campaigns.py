"""Campaigns: created, read, and changed by users.

Functions that change one take a writing session (`Store.transaction`) and announce the change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.orm import Session

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState
from autotune.schemas.requests import (
    Budget,
    BudgetExtension,
    CampaignChange,
    CampaignCreate,
    Knobs,
)
from autotune.schemas.trials import FAILURES
from evaluators.cluster import profile_from_dict
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.fields import as_table, checked
from search_spaces.machine import Machine
from search_spaces.transformer import Transformer
from server.campaign.best import BestSoFar
from server.campaign.knobs import check_knobs
from server.campaign.start import machine_digest, program_of
from server.store.errors import Conflict, NotFound
from server.store.outcomes import best_so_far
from server.store.record import record_of
from server.store.store import announce
from server.store.tables import CampaignRow, TrialRow

WORKED_ON = (CampaignState.QUEUED, CampaignState.RUNNING, CampaignState.CONFIRMING)
RESTING = (
    CampaignState.DONE,
    CampaignState.CANCELLED,
    CampaignState.FAILED,
    CampaignState.IMPORTED,
)
"""States of campaigns that have ended."""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Counts of a campaign's trials. `trials` are all but confirmations and knobs', in any
    state."""

    trials: int = 0
    pending: int = 0
    waiting: int = 0
    failures: int = 0
    confirmations: int = 0
    knob_starts: int = 0
    node_hours: float = 0.0
    surrogate_from: int | None = None
    waits_for: str = ""


@dataclass(frozen=True, kw_only=True)
class IdempotencyKey:
    """A client's key of one request, and a hash of its body."""

    key: str
    digest: str
    owner: str | None = None

    @property
    def stored(self) -> str:
        if self.owner is None:
            return self.key
        return hashlib.sha256(f"{self.owner}\n{self.key}".encode()).hexdigest()


def create_campaign(
    session: Session,
    request: CampaignCreate,
    *,
    model: Transformer,
    machine: Machine,
    simulated: bool,
    profile: Mapping[str, Any] | None = None,
    owner: str | None = None,
    idempotency: IdempotencyKey | None = None,
) -> Campaign:
    """Insert a queued campaign.

    Args:
        profile: the present content of its cluster's profile, which is stored with it.
        owner: name of its user; None if the service has no users.
    """
    row = CampaignRow(
        name=request.name or f"{model.name} on {machine.name}",
        state=CampaignState.QUEUED,
        reason="",
        evaluator=request.evaluator,
        objective=request.objective,
        simulated=simulated,
        request=request.model_dump(mode="json"),
        model=as_table(model),
        machine=as_table(machine),
        profile=None if profile is None else dict(profile),
        machine_digest=machine_digest(machine),
        program=program_of(request, profile),
        owner=owner,
        private=request.private,
        own_runner=request.own_runner,
        created_at=datetime.now(UTC),
        idempotency_key=idempotency.stored if idempotency else None,
        idempotency_hash=idempotency.digest if idempotency else None,
    )
    session.add(row)
    session.flush()
    announce(session, "campaign", campaign_id=row.id)
    return campaign_of(row, Tally())


def find_replay(session: Session, idempotency: IdempotencyKey) -> Campaign | None:
    """Return the campaign that this key created; raises Conflict if the request's body differed."""
    query = select(CampaignRow).where(CampaignRow.idempotency_key == idempotency.stored)
    row = session.scalars(query).one_or_none()
    if row is None:
        return None
    if row.idempotency_hash != idempotency.digest:
        reason = f"campaign {row.id} was created under this key by another body"
        valid = "a new key for each new request"
        raise Conflict("Idempotency-Key", idempotency.key, reason, valid=valid)
    return get_campaign(session, row.id)


def pause_campaign(session: Session, campaign_id: int) -> Campaign:
    """Pause a campaign: running trials end, and no new ones start."""
    row = campaign_row(session, campaign_id, for_update=True)
    if row.state != CampaignState.PAUSED:
        _demand(row, "paused", WORKED_ON)
        change_state(session, row, CampaignState.PAUSED, reason="paused by the user")
    return get_campaign(session, campaign_id)


def resume_campaign(session: Session, campaign_id: int) -> Campaign:
    """Resume a paused campaign, or a failed one, whose cause may have been fixed."""
    row = campaign_row(session, campaign_id, for_update=True)
    if row.state not in WORKED_ON:
        _demand(row, "resumed", (CampaignState.PAUSED, CampaignState.FAILED))
        change_state(session, row, _active_state(row))
    return get_campaign(session, campaign_id)


def cancel_campaign(session: Session, campaign_id: int) -> Campaign:
    """Cancel a campaign for good; its runner ends its running trials."""
    row = campaign_row(session, campaign_id, for_update=True)
    if row.state != CampaignState.CANCELLED:
        _demand(row, "cancelled", (*WORKED_ON, CampaignState.PAUSED, CampaignState.FAILED))
        change_state(session, row, CampaignState.CANCELLED, reason="cancelled by the user")
    return get_campaign(session, campaign_id)


def extend_campaign(session: Session, campaign_id: int, extension: BudgetExtension) -> Campaign:
    """Set new totals of the budget, or knobs to try; a finished campaign continues."""
    row = campaign_row(session, campaign_id, for_update=True)
    _demand(row, "extended", (*WORKED_ON, CampaignState.PAUSED, CampaignState.DONE))
    request = CampaignCreate.model_validate(row.request)
    wanted = extension.model_dump(exclude_none=True)
    knobs = wanted.pop("knobs", None)
    if knobs:
        profile = profile_from_dict(row.profile, source="campaign") if row.profile else None
        check_knobs(knobs, request, profile)
    _check_extension(request.budget, wanted, with_knobs=bool(knobs))
    changed: dict[str, Any] = {"budget": request.budget.model_copy(update=wanted)}
    changed |= {"knobs": _added(request.knobs, knobs)} if knobs else {}
    row.request = request.model_copy(update=changed).model_dump(mode="json")
    if row.state == CampaignState.DONE and not wanted:
        change_state(session, row, CampaignState.CONFIRMING, reason=row.reason)
    elif row.state in {CampaignState.DONE, CampaignState.CONFIRMING} and wanted:
        change_state(session, row, _active_state(row))
    else:
        announce(session, "campaign", campaign_id=row.id)
    return get_campaign(session, campaign_id)


def change_campaign(session: Session, campaign_id: int, change: CampaignChange) -> Campaign:
    """Rename a campaign, or make it private or public."""
    row = campaign_row(session, campaign_id, for_update=True)
    if change.name is not None:
        row.name = change.name
    if change.private is not None:
        row.private = change.private
    announce(session, "campaign", campaign_id=row.id)
    return get_campaign(session, campaign_id)


def delete_campaign(session: Session, campaign_id: int) -> list[str]:
    """Delete a campaign with its rows; return the tokens of its trials, whose folders can now be
    deleted."""
    row = campaign_row(session, campaign_id, for_update=True)
    _demand(row, "deleted", (*RESTING, CampaignState.PAUSED))
    trials = session.execute(
        select(TrialRow.token, TrialRow.state).where(TrialRow.campaign_id == campaign_id)
    ).all()
    if any(state == "pending" for _, state in trials):
        reason = f"campaign {campaign_id} still has running trials"
        raise Conflict("campaign", campaign_id, reason, valid="cancel it, wait for them to end")
    session.delete(row)
    for later in _started_from(session, campaign_id):
        announce(session, "campaign", campaign_id=later)
    return [token for token, _ in trials]


def _started_from(session: Session, campaign_id: int) -> list[int]:
    starts = select(CampaignRow.id, CampaignRow.started_from)
    rows = session.execute(starts.where(CampaignRow.started_from.is_not(None)))
    return [row[0] for row in rows if any(s["campaign_id"] == campaign_id for s in row[1] or ())]


def change_state(
    session: Session, row: CampaignRow, state: CampaignState, *, reason: str = ""
) -> None:
    """Set the state with its times and reason, and announce it."""
    now = datetime.now(UTC)
    row.state, row.reason = state, reason
    row.finished_at = now if state in RESTING else None
    if state == CampaignState.RUNNING and row.started_at is None:
        row.started_at = now
    announce(session, "campaign", campaign_id=row.id)


def _active_state(row: CampaignRow) -> CampaignState:
    return CampaignState.RUNNING if row.started_at else CampaignState.QUEUED


def _demand(row: CampaignRow, verb: str, states: Iterable[CampaignState]) -> None:
    allowed = list(states)
    if row.state not in allowed:
        reason = f"campaign {row.id} is {row.state} and cannot be {verb}"
        valid = f"a campaign that is {' or '.join(allowed)}"
        raise Conflict("state", row.state, reason, valid=valid)


def _added(present: Knobs, others: Knobs) -> Knobs:
    if present == "all" or others == "all":
        return "all"
    return list(dict.fromkeys([*present, *others]))


def _check_extension(budget: Budget, wanted: dict[str, Any], *, with_knobs: bool) -> None:
    if not wanted and not with_knobs:
        valid = "at least one of max_trials, max_node_hours, deadline, knobs"
        raise InvalidInput("extension", {}, "nothing is extended", valid=valid)
    problems = [
        InvalidInput(name, value, f"the budget has {present} already", valid=f"more than {present}")
        for name, value in wanted.items()
        if (present := getattr(budget, name)) is not None and not _exceeds(value, present)
    ]
    deadline = wanted.get("deadline")
    if deadline is not None and not _exceeds(deadline, datetime.now(UTC)):
        problems.append(InvalidInput("deadline", str(deadline), "it has passed", valid="later"))
    if problems:
        raise InvalidInputs(problems)


def _exceeds(value: Any, present: Any) -> bool:
    if isinstance(value, datetime):
        return _aware(value) > _aware(present)
    return bool(value > present)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def get_campaign(session: Session, campaign_id: int) -> Campaign:
    return campaigns_of(session, [campaign_row(session, campaign_id)])[0]


def campaign_row(session: Session, campaign_id: int, *, for_update: bool = False) -> CampaignRow:
    """Return a campaign's row, locked if it is to be changed; raises NotFound."""
    row = session.get(CampaignRow, campaign_id, with_for_update=for_update or None)
    if row is None:
        raise NotFound("campaign", campaign_id)
    return row


def states_of(
    session: Session, campaign_ids: Collection[int] | None = None
) -> dict[int, CampaignState]:
    """Return the states of campaigns, None for all."""
    query = select(CampaignRow.id, CampaignRow.state)
    if campaign_ids is not None:
        query = query.where(CampaignRow.id.in_(campaign_ids))
    return {row[0]: CampaignState(row[1]) for row in session.execute(query)}


def campaigns_of(session: Session, rows: Sequence[CampaignRow]) -> list[Campaign]:
    return [campaign for campaign, _ in campaigns_with_best(session, rows)]


def campaigns_with_best(
    session: Session, rows: Sequence[CampaignRow]
) -> list[tuple[Campaign, BestSoFar]]:
    """Return the campaigns of these rows, each with its best so far."""
    sums = tallies(session, [row.id for row in rows])
    named = {start["campaign_id"] for row in rows for start in row.started_from or ()}
    there = _present(session, named) if named else set()
    campaigns = [campaign_of(row, sums[row.id], deleted=named - there) for row in rows]
    found = best_so_far(session, campaigns)
    return [(_with_best(each, found[each.id]), found[each.id]) for each in campaigns]


def _with_best(campaign: Campaign, best: BestSoFar) -> Campaign:
    fields: dict[str, Any] = {}
    if best.improvements:
        fields["fastest_trial"], fields["fastest_objective"] = best.improvements[-1]
    if best.layout is not None:
        fields |= {
            "best_trial": best.layout.trial,
            "best_objective": best.layout.objective,
            "best_strategy": best.layout.strategy,
            "best_mfu": best.layout.mfu,
            "best_projected_from_nodes": best.layout.from_nodes,
            "best_projected_from_layers": best.layout.from_layers,
        }
    return campaign.model_copy(update=fields)


def _present(session: Session, campaign_ids: Collection[int]) -> set[int]:
    return set(session.scalars(select(CampaignRow.id).where(CampaignRow.id.in_(campaign_ids))))


def tallies(session: Session, campaign_ids: Iterable[int]) -> dict[int, Tally]:
    """Return each campaign's tally."""
    ids = list(campaign_ids)
    by_surrogate = TrialRow.expected["chosen_by"].as_string() == "surrogate"
    sums = {campaign_id: Tally() for campaign_id in ids}
    counts = (  # the columns are named as the fields of a tally
        select(
            TrialRow.campaign_id,
            _count(TrialRow.purpose.not_in(("confirmation", "knob"))).label("trials"),
            _count(TrialRow.state == "pending").label("pending"),
            _count((TrialRow.state == "pending") & (TrialRow.phase == "waiting")).label("waiting"),
            _count(TrialRow.state.in_(FAILURES)).label("failures"),
            _count(TrialRow.purpose == "confirmation").label("confirmations"),
            _count(TrialRow.purpose == "knob").label("knob_starts"),
            func.coalesce(func.sum(TrialRow.node_hours), 0.0).label("node_hours"),
            func.min(case((by_surrogate, TrialRow.number))).label("surrogate_from"),
        )
        .where(TrialRow.campaign_id.in_(ids))
        .group_by(TrialRow.campaign_id)
    )
    for row in session.execute(counts).mappings():
        figures = dict(row)
        campaign_id = figures.pop("campaign_id")
        sums[campaign_id] = Tally(**figures)
    waiting = [campaign_id for campaign_id, tally in sums.items() if tally.waiting]
    for campaign_id, reason in _reasons_to_wait(session, waiting).items():
        sums[campaign_id] = replace(sums[campaign_id], waits_for=reason)
    return sums


def _reasons_to_wait(session: Session, campaign_ids: Collection[int]) -> dict[int, str]:
    if not campaign_ids:
        return {}
    query = (
        select(TrialRow.campaign_id, TrialRow.phase, TrialRow.phase_reason)
        .where(TrialRow.campaign_id.in_(campaign_ids), TrialRow.state == "pending")
        .group_by(TrialRow.campaign_id, TrialRow.phase, TrialRow.phase_reason)
        .order_by(case((TrialRow.phase == "running", 1), else_=0), func.count())
    )
    return {
        campaign_id: reason if phase == "waiting" else ""
        for campaign_id, phase, reason in session.execute(query)
        if phase is not None
    }


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)


def profile_of(session: Session, campaign_id: int) -> dict[str, Any] | None:
    return campaign_row(session, campaign_id).profile


def campaign_of(
    row: CampaignRow, tally: Tally, *, deleted: Collection[int] = frozenset()
) -> Campaign:
    """Return a row and its tally as the wire model.

    Args:
        deleted: ids of deleted campaigns that it may have started from.
    """
    starts = row.started_from
    if starts is not None:
        starts = [start | {"deleted": start["campaign_id"] in deleted} for start in starts]
    return record_of(
        Campaign,
        row,
        request=CampaignCreate.model_validate(row.request),
        model=checked(Transformer, row.model, prefix="model"),
        machine=checked(Machine, row.machine, prefix="machine"),
        started_from=starts,
        **vars(tally) | {"waits_for": _waits_for(row, tally)},
    )


def _waits_for(row: CampaignRow, tally: Tally) -> str:
    # The reason of a campaign that confirms or has ended is why its search ended.
    if row.state in RESTING:
        return ""
    return (row.state != CampaignState.CONFIRMING and row.reason) or tally.waits_for
