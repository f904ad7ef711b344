"""Trials: written by a runner before they start and when they end, and read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, case, func, select, update
from sqlalchemy.orm import Session

from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial, TrialPage
from evaluators.trial import TrialProgress
from search_spaces.dimensions import BY_NAME, OF_EXPERTS, TABLE
from search_spaces.fields import as_table
from server.campaign.results import FinishedTrial, NewTrial, UnrunTrial
from server.campaign.start import adapter_version
from server.store import paging
from server.store.campaigns import campaign_row
from server.store.errors import NotFound
from server.store.record import trial_of
from server.store.store import announce
from server.store.tables import CampaignRow, TrialRow, of_strategy

LONGEST_NAME = 255
COLUMNS = (
    "duration_s",
    "node_hours",
    "predicted_iteration_time_s",
    "predicted_memory_gib",
    "gpu_joules_per_token",
)
METRICS = (
    "iteration_time_s",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "tokens_per_joule",
    "model_tflops_per_gpu",
    "hardware_tflops_per_gpu",
    "mfu",
    "hfu",
    "peak_memory_gib",
    "loss",
)
DIMENSIONS = tuple(d.name for d in TABLE if d.is_counted)
AT_ONCE = 500
"""Rows named in one statement: databases limit its number of values."""

SORTS = ("number", *METRICS, *COLUMNS, *DIMENSIONS)


def insert_trials(
    session: Session, campaign: CampaignRow, trials: Sequence[NewTrial]
) -> list[Trial]:
    """Insert pending trials, numbered on from the last one, each with a token and the version of
    its adapter."""
    versions = adapter_version(campaign.profile)
    last = session.scalar(
        select(func.max(TrialRow.number)).where(TrialRow.campaign_id == campaign.id)
    )
    rows = [
        TrialRow(
            **vars(trial)
            | {
                "strategy": as_table(trial.strategy),
                "expected": trial.expected.model_dump(mode="json"),
            },
            campaign_id=campaign.id,
            number=number,
            token=f"c{campaign.id}-t{number}-{uuid4().hex[:12]}",
            state=TrialState.PENDING,
            simulated=campaign.simulated,
            created_at=datetime.now(UTC),
            measurements=[],
            peak_memory_gib=[],
            versions=versions,
        )
        for number, trial in enumerate(trials, start=(last or 0) + 1)
    ]
    session.add_all(rows)
    session.flush()
    for row in rows:
        announce(session, "trial", campaign_id=campaign.id, trial_number=row.number)
    return [trial_of(row) for row in rows]


def finish_trial(session: Session, trial: Trial, result: FinishedTrial | UnrunTrial) -> bool:
    return _change_pending(session, trial, final_columns(result))


def finish_all(session: Session, campaign_id: int, result: UnrunTrial) -> None:
    """Write the end of all pending trials without reading their rows, which may be invalid."""
    statement = (
        update(TrialRow)
        .where(TrialRow.campaign_id == campaign_id, TrialRow.state == TrialState.PENDING)
        .values(**final_columns(result))
        .execution_options(synchronize_session=False)
        .returning(TrialRow.number)
    )
    for number in sorted(session.scalars(statement)):
        announce(session, "trial", campaign_id=campaign_id, trial_number=number)


def note_progress(session: Session, trial: Trial, progress: TrialProgress | None) -> bool:
    """Write a pending trial's progress, None if it is neither queued nor running; return False,
    with nothing written, if it has ended."""
    return _change_pending(session, trial, _progress_columns(progress))


def is_noted(trial: Trial, progress: TrialProgress | None) -> bool:
    columns = _progress_columns(progress)
    return all(getattr(trial, name) == value for name, value in columns.items())


def _change_pending(session: Session, trial: Trial, values: Mapping[str, Any]) -> bool:
    statement = (
        update(TrialRow)
        .where(TrialRow.id == trial.id, TrialRow.state == TrialState.PENDING)
        .values(**values)
        .execution_options(synchronize_session=False)
        .returning(TrialRow.id)
    )
    if session.execute(statement).first() is None:
        return False
    announce(session, "trial", campaign_id=trial.campaign_id, trial_number=trial.number)
    return True


def final_columns(result: FinishedTrial | UnrunTrial) -> dict[str, Any]:
    """Return the columns that a trial's end changes."""
    error = _storable(result.error) if result.error else None
    ended = vars(result) | {"error": error, "phase": None, "phase_reason": ""}
    if isinstance(result, UnrunTrial):
        return ended | {"node_hours": 0.0}
    points, peaks = ended.pop("accumulations"), ended.pop("peak_memory_gib_by_rank")
    if versions := dict(ended.pop("versions")):  # otherwise those of its adapter stay
        ended["versions"] = versions
    return ended | {
        "metrics": result.metrics.model_dump() if result.metrics else None,
        "measurements": [point.model_dump(mode="json") for point in points],
        "peak_memory_gib": list(peaks),
        "energy_note": _storable(result.energy_note),
        "host": _storable(result.host)[:LONGEST_NAME],
        "job_id": _name(result.job_id),
    }


def _progress_columns(progress: TrialProgress | None) -> dict[str, Any]:
    if progress is None:
        return {"phase": None, "phase_reason": "", "job_id": None, "host": None}
    return {
        "phase": progress.phase,
        "phase_reason": _storable(progress.reason),
        "job_id": _name(progress.job_id),
        "host": _name(progress.host),
    }


def _name(text: str | None) -> str | None:
    return _storable(text)[:LONGEST_NAME] if text else None


def _storable(text: str) -> str:
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def get_trial(session: Session, campaign_id: int, number: int) -> Trial:
    return trial_of(_row(session, campaign_id, number))


def _row(session: Session, campaign_id: int, number: int) -> TrialRow:
    query = select(TrialRow).where(TrialRow.campaign_id == campaign_id, TrialRow.number == number)
    row = session.scalars(query).one_or_none()
    if row is None:
        campaign_row(session, campaign_id)
        reason = f"campaign {campaign_id} has no trial {number}"
        raise NotFound("trial", number, reason=reason)
    return row


def all_trials(session: Session, campaign_id: int, *, known: Iterable[Trial] = ()) -> list[Trial]:
    """Return a campaign's trials in the order of their numbers.

    Args:
        known: trials that were read before; their rows are not read again if they had ended.
    """
    of_campaign = TrialRow.campaign_id == campaign_id
    ended = {(t.token, t.finished_at): t for t in known if t.state is not TrialState.PENDING}
    if not ended:
        rows = session.scalars(select(TrialRow).where(of_campaign).order_by(TrialRow.number))
        return [trial_of(row) for row in rows]
    columns = select(TrialRow.number, TrialRow.token, TrialRow.finished_at).where(of_campaign)
    keys = {number: (token, at) for number, token, at in session.execute(columns)}
    trials = {number: ended[key] for number, key in keys.items() if key in ended}
    others = [number for number in keys if number not in trials]
    trials |= {trial.number: trial for trial in _numbered(session, campaign_id, others)}
    return [trials[number] for number in sorted(trials)]


def _numbered(session: Session, campaign_id: int, numbers: Sequence[int]) -> Iterator[Trial]:
    for start in range(0, len(numbers), AT_ONCE):
        some = numbers[start : start + AT_ONCE]
        query = select(TrialRow).where(TrialRow.campaign_id == campaign_id)
        for row in session.scalars(query.where(TrialRow.number.in_(some))):
            yield trial_of(row)


def pending_trials(session: Session, campaign_id: int) -> list[Trial]:
    """Return the pending trials of a campaign, in the order of their numbers."""
    query = (
        select(TrialRow)
        .where(TrialRow.campaign_id == campaign_id, TrialRow.state == TrialState.PENDING)
        .order_by(TrialRow.number)
    )
    return [trial_of(row) for row in session.scalars(query)]


def reasons_to_wait(session: Session, campaign_id: int) -> dict[str, int]:
    """Return the number of trials that wait for nodes, by reason; "" if it is unknown."""
    query = (
        select(TrialRow.phase_reason, func.count())
        .where(
            TrialRow.campaign_id == campaign_id,
            TrialRow.state == TrialState.PENDING,
            TrialRow.phase == "waiting",
        )
        .group_by(TrialRow.phase_reason)
    )
    return {row[0]: row[1] for row in session.execute(query)}


def list_trials(
    session: Session,
    campaign_id: int,
    state: TrialState | None = None,
    purpose: str | None = None,
    sort: str = "number",
    cursor: str | None = None,
    limit: int = 200,
    *,
    without: Collection[int] = (),
) -> TrialPage:
    """Return a page of trials in the order of `sort`, descending with a leading `-`.

    Trials without the field (failed or pending ones) come last in both directions.

    Args:
        without: numbers of trials to exclude.

    Raises:
        NotFound: there is no such campaign.
        InvalidInput: the sort or the cursor is invalid.
    """
    campaign_row(session, campaign_id)
    key, falling = _key(sort)
    query = select(TrialRow, key).where(TrialRow.campaign_id == campaign_id)
    if state is not None:
        query = query.where(TrialRow.state == state)
    if purpose is not None:
        query = query.where(TrialRow.purpose == purpose)
    if without:
        query = query.where(TrialRow.number.not_in(without))
    if cursor is not None:
        value, number = paging.decode(cursor, parts=2)
        later = TrialRow.number > number
        query = query.where(paging.follows(key, value, falling=falling, later=later))
    missing = case((key.is_(None), 1), else_=0)
    order = (missing, key.desc() if falling else key.asc(), TrialRow.number)
    rows = session.execute(query.order_by(*order).limit(limit + 1)).all()
    following = None
    if len(rows) > limit:
        last = rows[limit - 1]
        following = paging.encode([last[1], last[0].number])
    return TrialPage(items=[trial_of(row[0]) for row in rows[:limit]], next=following)


def layouts_of_experts(session: Session, campaign_id: int) -> tuple[str, ...]:
    """Return the dimensions of experts that some trial of a campaign uses."""
    most = [func.max(of_strategy(name)) for name in OF_EXPERTS]
    found = session.execute(select(*most).where(TrialRow.campaign_id == campaign_id)).one()
    return tuple(
        name
        for name, value in zip(OF_EXPERTS, found, strict=True)
        if value is not None and not BY_NAME[name].is_absent(value)
    )


def settings_in(session: Session, campaign_id: int) -> tuple[str, ...]:
    """Return the trainer's own dimensions and the knobs that some trial of a campaign has."""
    query = select(TrialRow.strategy["settings"]).where(TrialRow.campaign_id == campaign_id)
    rows = session.scalars(query.order_by(TrialRow.number))
    return tuple(dict.fromkeys(name for settings in rows for name in settings or ()))


def _key(sort: str) -> tuple[ColumnElement[Any], bool]:
    name, falling = paging.read_sort(sort, SORTS, of="trials")
    if name in METRICS:
        return TrialRow.metrics[name].as_float(), falling
    return of_strategy(name) if name in DIMENSIONS else getattr(TrialRow, name), falling
