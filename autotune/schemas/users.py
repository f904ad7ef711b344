"""Users of a shared service, their scopes and limits, and the audit."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, get_args

from pydantic import Field

from autotune.schemas.choices import UserScope
from autotune.schemas.wire import NodeHours, Wire

SCOPES: tuple[UserScope, ...] = get_args(UserScope)

USER_NAME = r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$"
UserName = Annotated[str, Field(pattern=USER_NAME, max_length=64)]
AtMost = Annotated[int, Field(gt=0, le=1_000_000)]


class UserLimits(Wire):
    """Limits of a user; null: no limit."""

    most_campaigns: AtMost | None = None
    """Maximum active campaigns."""
    most_trials: AtMost | None = None
    """Maximum concurrent trials of all campaigns."""
    node_hours_a_month: NodeHours | None = None
    """Maximum node-hours of trials per calendar month (UTC), without simulated trials."""


class UserCreate(UserLimits):
    """A user to be added."""

    name: UserName
    """Letters, digits and `._@+-`; unique, also among revoked users."""
    scope: UserScope = "submit"
    """Scope of the user."""


class UserChange(UserLimits):
    """Fields to change; omitted fields stay unchanged."""

    scope: UserScope = "submit"
    """Scope of the user."""


class User(UserLimits):
    """A user."""

    name: str
    """Name of the user."""
    scope: UserScope
    """Scope of the user."""
    has_token: bool
    """Whether there is a token; a user without one signs in through a proxy."""
    created_at: datetime
    """When the user was added."""
    revoked_at: datetime | None
    """When the user was revoked; null: never."""
    last_used_at: datetime | None
    """Time of the last request, to ten minutes; null: never."""
    unfinished_campaigns: int
    """Campaigns that have not ended."""
    node_hours_this_month: float
    """Node-hours used this calendar month (UTC), without simulated trials."""


class NewToken(Wire):
    """A user's token. It is returned once: the service stores only its hash."""

    name: str
    """The user's name, with which the token begins."""
    token: str
    """For `autotune login`, AUTOTUNE_TOKEN, or the sign-in page."""


class BrowserKey(Wire):
    """A one-time key that signs in one browser."""

    key: str
    """Open it as `/enter?key=…`, with `to=` for a page of the service."""


class WhoAmI(Wire):
    """The user who makes the request."""

    name: str | None
    """Name of the user; null for the service's own user."""
    scope: UserScope
    """Scope of this user."""
    group: bool
    """Whether the service is shared by a group, with a token for each user."""


class AuditEntry(Wire):
    """A requested change."""

    id: int
    """Grows with each."""
    at: datetime
    """Time of the response."""
    user: str | None
    """The user; null: the service's own user, or unknown (status 401)."""
    address: str
    """Origin of the request: an address, or `command` for a command at the database."""
    action: str
    """The method with the path's template, or the command."""
    campaign_id: int | None
    """Its campaign; null if it has none."""
    status: int
    """HTTP status: 2xx done, 4xx refused."""


class AuditPage(Wire):
    """A page of the audit, newest first."""

    items: list[AuditEntry]
    """Changes of this page."""
    next: str | None = None
    """Cursor of the next page; null on the last."""
