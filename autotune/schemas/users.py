"""Users of a shared service, and their scopes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, get_args

from pydantic import Field

from autotune.schemas.choices import UserScope
from autotune.schemas.wire import Wire

SCOPES: tuple[UserScope, ...] = get_args(UserScope)

USER_NAME = r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$"
UserName = Annotated[str, Field(pattern=USER_NAME, max_length=64)]


class UserCreate(Wire):
    """A user to add, or to give a new token."""

    name: UserName
    """Letters, digits and `._@+-`."""
    scope: UserScope = "submit"
    """Scope of the user; omitted: unchanged for an existing user, `submit` for a new one."""


class User(Wire):
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
