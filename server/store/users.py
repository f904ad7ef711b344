"""Users and their tokens."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from sqlalchemy import ColumnElement, Row, case, func, select
from sqlalchemy.orm import Session

from autotune.schemas.choices import TrialState, UserScope
from autotune.schemas.users import User, UserCreate
from server.store.campaigns import RESTING
from server.store.errors import NotFound
from server.store.record import record_of
from server.store.tables import CampaignRow, TrialRow, UserRow

USED_EVERY = timedelta(minutes=10)
USERS_TOKEN = re.compile(r"(.+)\.[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, kw_only=True)
class Account:
    """What authentication needs to know of a user.

    Attributes:
        token_hash: None if the user has no token.
        noted: when the user's last request was noted.
    """

    name: str
    scope: UserScope
    token_hash: str | None
    revoked: bool
    noted: datetime | None

    @property
    def is_to_be_noted(self) -> bool:
        return self.noted is None or datetime.now(UTC) - self.noted > USED_EVERY


def new_token(user: str = "") -> str:
    secret = secrets.token_urlsafe(32)
    return f"{user}.{secret}" if user else secret


def user_of(token: str) -> str:
    found = USERS_TOKEN.fullmatch(token)
    return found[1] if found else ""


def token_hash(token: str) -> str:
    """Return the hash that is stored of a token, in 64 hexadecimal digits.

    A token has 256 random bits and needs neither salt nor iterations.
    """
    return hashlib.sha256(token.encode()).hexdigest()


def add_user(session: Session, request: UserCreate) -> str:
    """Add a user and return the token. One who exists gets a new token and the scope, if the
    request has one, and is admitted again after being revoked."""
    row = _found(session, request.name)
    if row is None:
        row = _added(session, request.name, request.scope)
    elif "scope" in request.model_fields_set:
        row.scope = request.scope
    row.revoked_at = None
    token = new_token(row.name)
    row.token_hash = token_hash(token)
    session.flush()
    return token


def add_proxy_user(session: Session, name: str, scope: UserScope) -> None:
    _added(session, name, scope)
    session.flush()


def _added(session: Session, name: str, scope: UserScope) -> UserRow:
    row = UserRow(name=name, scope=scope, created_at=datetime.now(UTC))
    session.add(row)
    return row


def revoke_user(session: Session, name: str) -> User:
    row = _row(session, name)
    row.revoked_at = row.revoked_at or datetime.now(UTC)
    return get_user(session, name)


def note_use(session: Session, name: str) -> None:
    _row(session, name).last_used_at = datetime.now(UTC)


def account_of(session: Session, name: str) -> Account | None:
    """Return a user's account; None if there is no such user."""
    row = _found(session, name)
    if row is None:
        return None
    return Account(
        name=row.name,
        scope=cast("UserScope", row.scope),
        token_hash=row.token_hash,
        revoked=row.revoked_at is not None,
        noted=row.last_used_at,
    )


def get_user(session: Session, name: str) -> User:
    return _user(session, _row(session, name))


def list_users(session: Session) -> list[User]:
    return [_user(session, row) for row in session.scalars(select(UserRow).order_by(UserRow.name))]


def revoked_users(session: Session) -> frozenset[str]:
    return frozenset(session.scalars(select(UserRow.name).where(UserRow.revoked_at.is_not(None))))


def usage_by_user(session: Session, *, since: datetime) -> Sequence[Row[Any]]:
    """Return what each user runs and has used, the most node-hours since a time first.

    Rows have `name` (empty for the service's own user), the numbers of `unfinished` and `finished`
    campaigns, `nodes` of the trials that run now, and `node_hours` of ended ones, with those that
    ended `since` as `recent_node_hours`. Simulated trials use no nodes.
    """
    runs = (TrialRow.state == TrialState.PENDING) & (TrialRow.phase == "running")
    recent = TrialRow.finished_at >= since
    used = (
        select(
            TrialRow.campaign_id,
            _sum(case((runs, TrialRow.strategy["num_nodes"].as_integer()))).label("nodes"),
            _sum(TrialRow.node_hours).label("node_hours"),
            _sum(case((recent, TrialRow.node_hours))).label("recent_node_hours"),
        )
        .where(TrialRow.simulated.is_(False))
        .group_by(TrialRow.campaign_id)
        .subquery()
    )
    owner = func.coalesce(CampaignRow.owner, "")
    users = select(UserRow.name).union(select(owner)).subquery()
    names = ("recent_node_hours", "node_hours", "nodes")
    sums = [_sum(used.c[name]).label(name) for name in names]
    query = (
        select(
            users.c.name,
            _sum(case((CampaignRow.state.not_in(RESTING), 1))).label("unfinished"),
            _sum(case((CampaignRow.state.in_(RESTING), 1))).label("finished"),
            *sums,
        )
        .outerjoin(CampaignRow, owner == users.c.name)
        .outerjoin(used, used.c.campaign_id == CampaignRow.id)
        .group_by(users.c.name)
        .order_by(sums[0].desc(), users.c.name)
    )
    return session.execute(query).all()


def _sum(values: Any) -> ColumnElement[Any]:
    return func.coalesce(func.sum(values), 0)


def _found(session: Session, name: str) -> UserRow | None:
    return session.scalars(select(UserRow).where(UserRow.name == name)).one_or_none()


def _row(session: Session, name: str) -> UserRow:
    row = _found(session, name)
    if row is None:
        raise NotFound("user", name)
    return row


def _user(session: Session, row: UserRow) -> User:
    unfinished = select(func.count()).where(
        CampaignRow.owner == row.name, CampaignRow.state.not_in(RESTING)
    )
    return record_of(
        User,
        row,
        has_token=row.token_hash is not None,
        unfinished_campaigns=session.scalar(unfinished) or 0,
    )
