"""Users: adding, changing and revoking them, their tokens, and whether limits allow them more."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from autotune.schemas import CampaignState, User, UserCreate, UserLimits, UserScope
from server.store.campaigns import RESTING
from server.store.errors import Conflict, NotFound
from server.store.node_hours import node_hours_of
from server.store.tables import CampaignRow, TrialRow, UserRow

USED_EVERY = timedelta(minutes=10)
LIMITS = tuple(UserLimits.model_fields)
USERS_TOKEN = re.compile(r"(.+)\.[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, kw_only=True)
class Account:
    """What lets a user in.

    Attributes:
        token_hash: None where there is no token.
        noted: when a use was last noted.
    """

    name: str
    scope: UserScope
    token_hash: str | None
    revoked: bool
    noted: datetime | None

    @property
    def is_to_be_noted(self) -> bool:
        """Whether so much time has passed that a use is to be noted again."""
        return self.noted is None or datetime.now(UTC) - self.noted > USED_EVERY


@dataclass(frozen=True, kw_only=True)
class UserUse:
    """What a user has now: campaigns that have not ended, trials that have not, and node-hours of
    this calendar month (UTC), the simulated ones left out."""

    campaigns: int
    trials: int
    node_hours: float


def new_token(user: str = "") -> str:
    """Return a token of 32 random bytes as text; a user's token begins with the name."""
    secret = secrets.token_urlsafe(32)
    return f"{user}.{secret}" if user else secret


def user_of(token: str) -> str:
    """Return the name of the user whose token it claims to be; empty for the service's own."""
    found = USERS_TOKEN.fullmatch(token)
    return found[1] if found else ""


def token_hash(token: str) -> str:
    """Return what the database stores of a token, in 64 hexadecimal digits.

    A token needs neither salt nor iterations: it has 256 random bits. The SHA-256 is that of an
    HMAC of the token, because earlier versions stored that and their tokens stay valid.
    """
    keyed = hmac.digest(token.encode(), b"Client Key", hashlib.sha256)
    return hashlib.sha256(keyed).hexdigest()


def add_user(session: Session, request: UserCreate, *, with_token: bool = True) -> str:
    """Add a user and return the token, empty where there is to be none; raises Conflict where the
    name has been given."""
    if session.scalar(select(UserRow.id).where(UserRow.name == request.name)) is not None:
        reason = f"there is, or was, a user {request.name}; a name is given once"
        valid = "another name, or a new token by `autotune users renew`"
        raise Conflict("name", request.name, reason, valid=valid)
    row = UserRow(**request.model_dump(), created_at=datetime.now(UTC))
    session.add(row)
    token = _renewed(row) if with_token else ""
    session.flush()
    return token


def renew_user(session: Session, name: str) -> str:
    """Return a new token, instead of the old one, of a user who is let in again where revoked;
    raises NotFound."""
    row = _row(session, name)
    row.revoked_at = None
    return _renewed(row)


def _renewed(row: UserRow) -> str:
    token = new_token(row.name)
    row.token_hash = token_hash(token)
    return token


def change_user(session: Session, name: str, changes: dict[str, str | int | float | None]) -> User:
    """Change a user's scope, limits or address; raises NotFound."""
    row = _row(session, name)
    for field, value in changes.items():
        setattr(row, field, value)
    return get_user(session, name)


def revoke_user(session: Session, name: str) -> User:
    """Let a user in no more; campaigns stay, and go on. Raises NotFound."""
    row = _row(session, name)
    row.revoked_at = row.revoked_at or datetime.now(UTC)
    return get_user(session, name)


def note_use(session: Session, name: str) -> None:
    """Write down that a user is here."""
    _row(session, name).last_used_at = datetime.now(UTC)


def account_of(session: Session, name: str) -> Account | None:
    """Return what lets a user in; None where there is no such user."""
    row = session.scalars(select(UserRow).where(UserRow.name == name)).one_or_none()
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
    """Return one user; raises NotFound."""
    return _user(session, _row(session, name))


def list_users(session: Session) -> list[User]:
    """Return all users, by their names, the revoked ones among them."""
    return [_user(session, row) for row in session.scalars(select(UserRow).order_by(UserRow.name))]


def revoked_users(session: Session) -> frozenset[str]:
    """Return the names of all who have been shut out."""
    return frozenset(session.scalars(select(UserRow.name).where(UserRow.revoked_at.is_not(None))))


def use_of(session: Session, name: str) -> UserUse:
    """Return what a user has now."""
    own = CampaignRow.owner == name
    unfinished = select(func.count()).select_from(CampaignRow)
    pending = (
        select(func.count())
        .select_from(TrialRow)
        .join(CampaignRow, CampaignRow.id == TrialRow.campaign_id)
        .where(own, TrialRow.state == "pending")
    )
    return UserUse(
        campaigns=session.scalar(unfinished.where(own, CampaignRow.state.not_in(RESTING))) or 0,
        trials=session.scalar(pending) or 0,
        node_hours=node_hours_of(session, name, datetime.now(UTC)),
    )


def demand_room(
    session: Session, name: str, *, simulated: bool, present: CampaignState | None = None
) -> None:
    """Raise Conflict where a user's limits do not allow a campaign more.

    Users who submit twice at once wait for each other.

    Args:
        simulated: such a campaign takes no node-hours.
        present: how a campaign of theirs stands that is to go on; None for a new one.
    """
    row = session.scalars(select(UserRow).where(UserRow.name == name).with_for_update()).first()
    if row is None:
        return
    use = use_of(session, name)
    one_more = present is None or present in RESTING
    if one_more and row.most_campaigns is not None and use.campaigns >= row.most_campaigns:
        reason = (
            f"{name} may have {row.most_campaigns} campaigns at once that have not ended, and has "
            f"{use.campaigns}"
        )
        valid = "one of them ended before, or a higher limit from an admin"
        raise Conflict("most_campaigns", row.most_campaigns, reason, valid=valid)
    most = row.node_hours_a_month
    if not simulated and most is not None and use.node_hours >= most:
        reason = (
            f"{name} may take {most:g} node-hours in a calendar month, and has taken "
            f"{use.node_hours:.1f} in this one"
        )
        valid = "the next month, or a higher limit from an admin"
        raise Conflict("node_hours_a_month", most, reason, valid=valid)


def _row(session: Session, name: str) -> UserRow:
    row = session.scalars(select(UserRow).where(UserRow.name == name)).one_or_none()
    if row is None:
        raise NotFound("user", name)
    return row


def _user(session: Session, row: UserRow) -> User:
    use = use_of(session, row.name)
    return User.model_validate(
        {
            "name": row.name,
            "scope": row.scope,
            "email": row.email,
            "has_token": row.token_hash is not None,
            "created_at": row.created_at,
            "revoked_at": row.revoked_at,
            "last_used_at": row.last_used_at,
            "unfinished_campaigns": use.campaigns,
            "node_hours_this_month": use.node_hours,
        }
        | {field: getattr(row, field) for field in LIMITS}
    )
