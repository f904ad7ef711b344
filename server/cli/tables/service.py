"""The users of a service as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group

from autotune.schemas.users import User, WhoAmI
from server.cli.tables.elements import moment, table


def users(found: Sequence[User]) -> Group:
    """Return one row per user, with unfinished campaigns."""
    return table(
        found,
        (
            ("user", lambda user: user.name),
            ("scope", lambda user: user.scope),
            (">unfinished campaigns", lambda user: user.unfinished_campaigns),
            ("last here, about", lambda user: moment(user.last_used_at)),
            (
                "",
                lambda user: (
                    "revoked" if user.revoked_at else "" if user.has_token else "only by the proxy"
                ),
            ),
        ),
    )


def unfinished(user: User) -> str:
    return f"unfinished campaigns of {user.name}: {user.unfinished_campaigns}"


def who(me: WhoAmI) -> str:
    if me.name is None:
        return "the service's own user, who may do all"
    return f"{me.name}, with the scope {me.scope}"
