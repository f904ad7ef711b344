"""Pages of a campaign's trials, filtered and sorted."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, or_, select
from sqlalchemy.orm import Session

from autotune.schemas import TrialPage, TrialState
from search_spaces.errors import InvalidInput, closest
from server.store import cursors
from server.store.queries import campaign_row
from server.store.tables import TrialRow
from server.store.wire import trial_of

COLUMNS = (
    "duration_s",
    "node_hours",
    "predicted_iteration_time_s",
    "predicted_memory_gib",
    "joules_per_token",
)
METRICS = (
    "iteration_time_s",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "model_tflops_per_gpu",
    "hardware_tflops_per_gpu",
    "mfu",
    "hfu",
    "peak_memory_gib",
    "loss",
)
SORTS = ("number", *METRICS, *COLUMNS)


def list_trials(
    session: Session,
    campaign_id: int,
    state: TrialState | None = None,
    purpose: str | None = None,
    sort: str = "number",
    cursor: str | None = None,
    limit: int = 200,
) -> TrialPage:
    """Trials in the order of `sort`, falling where it begins with `-`.

    Trials without the figure that is sorted by (failed or unfinished ones) come last either way.

    Raises:
        NotFound: there is no such campaign.
        InvalidInput: the sort or the cursor is not one.
    """
    campaign_row(session, campaign_id)
    key, falling = _key(sort)
    query = select(TrialRow, key).where(TrialRow.campaign_id == campaign_id)
    if state is not None:
        query = query.where(TrialRow.state == state)
    if purpose is not None:
        query = query.where(TrialRow.purpose == purpose)
    if cursor is not None:
        query = query.where(_after(key, falling, cursor))
    rows = session.execute(_ordered(query, key, falling).limit(limit + 1)).all()
    following = None
    if len(rows) > limit:
        last = rows[limit - 1]
        following = cursors.encode([last[1], last[0].number])
    return TrialPage(items=[trial_of(row[0]) for row in rows[:limit]], next=following)


def _key(sort: str) -> tuple[ColumnElement[Any], bool]:
    name = sort.removeprefix("-")
    if name not in SORTS:
        near = closest(name, SORTS)
        reason = "trials cannot be sorted by it" + (f"; meant {' or '.join(near)}?" if near else "")
        valid = ", ".join(SORTS) + "; with a leading - for falling order"
        raise InvalidInput("sort", sort, reason, valid=valid)
    if name in METRICS:
        return TrialRow.metrics[name].as_float(), sort.startswith("-")
    column: ColumnElement[Any] = getattr(TrialRow, name)
    return column, sort.startswith("-")


def _ordered(query: Select[Any], key: ColumnElement[Any], falling: bool) -> Select[Any]:
    missing = case((key.is_(None), 1), else_=0)
    return query.order_by(missing, key.desc() if falling else key.asc(), TrialRow.number)


def _after(key: ColumnElement[Any], falling: bool, cursor: str) -> ColumnElement[bool]:
    value, number = cursors.decode(cursor, parts=2)
    later = TrialRow.number > number
    if value is None:
        return and_(key.is_(None), later)
    beyond = key < value if falling else key > value
    return or_(beyond, and_(key == value, later), key.is_(None))
