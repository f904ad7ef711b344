"""Users of a service that a group shares, what they may do, and what was done."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, get_args

from pydantic import Field

from autotune.schemas.choices import UserScope
from autotune.schemas.wire import Wire

SCOPES: tuple[UserScope, ...] = get_args(UserScope)

USER_NAME = r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$"
UserName = Annotated[str, Field(pattern=USER_NAME, max_length=64)]
EMAIL_ADDRESS = r"^[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9.-]{1,189}$"
EmailAddress = Annotated[str, Field(pattern=EMAIL_ADDRESS, max_length=254)]
AtMost = Annotated[int, Field(gt=0, le=1_000_000)]


class UserLimits(Wire):
    """How much one user may have; null: no limit."""

    most_campaigns: AtMost | None = None
    """Campaigns that have not ended, at once."""
    most_trials: AtMost | None = None
    """Trials at once, of all campaigns."""
    node_hours_a_month: Annotated[float, Field(gt=0)] | None = None
    """Node-hours of trials in a calendar month (UTC), the simulated ones left out."""


class UserCreate(UserLimits):
    """A user to be added."""

    name: UserName
    """Letters, digits and `._@+-`; given once, even where its user was revoked."""
    scope: UserScope = "submit"
    """What the user may do."""
    email: EmailAddress | None = None
    """Where campaigns of theirs that ask for it tell of their end; null: nowhere."""


class UserChange(UserLimits):
    """What is to be another; what is left out stays."""

    scope: UserScope = "submit"
    """What the user may do."""
    email: EmailAddress | None = None
    """Where campaigns of theirs that ask for it tell of their end; null: nowhere."""


class User(UserLimits):
    """A user."""

    name: str
    """As which owners of campaigns are named."""
    scope: UserScope
    """What the user may do."""
    email: str | None = None
    """Where campaigns of theirs that ask for it tell of their end; null: nowhere."""
    has_token: bool
    """Whether there is a token; without one the user comes through a proxy alone."""
    created_at: datetime
    """When the user was added."""
    revoked_at: datetime | None
    """When the user was shut out; null: never."""
    last_used_at: datetime | None
    """When a request was last made, to ten minutes; null: never."""
    unfinished_campaigns: int
    """Campaigns that have not ended."""
    node_hours_this_month: float
    """Node-hours that trials have taken this calendar month (UTC), the simulated ones left out."""


class NewToken(Wire):
    """A user's token. It is told once: the service keeps what it is known by alone."""

    name: str
    """The user's name, with which the token begins."""
    token: str
    """For `autotune login`, AUTOTUNE_TOKEN, or the sign-in page."""


class WhoAmI(Wire):
    """Who asks, as the service knows them."""

    name: str | None
    """The user's name; null for the service's own user, who runs it."""
    scope: UserScope
    """What this user may do."""
    group: bool
    """Whether the service is shared by a group, with a token for each user."""


class AuditEntry(Wire):
    """One change that was asked for."""

    id: int
    """Grows with each."""
    at: datetime
    """When it was answered."""
    user: str | None
    """Who asked; null: the service's own user, or nobody known (status 401)."""
    address: str
    """Where the request came from: an address, or `command` for a command at the database."""
    action: str
    """The method with the path's template, or the command."""
    campaign_id: int | None
    """The campaign that it was about; null where it was about none."""
    status: int
    """HTTP status of the answer: 2xx done, 4xx refused."""


class AuditPage(Wire):
    """A page of the audit, newest first."""

    items: list[AuditEntry]
    """Changes of this page."""
    next: str | None = None
    """Cursor of the next page; null on the last."""
