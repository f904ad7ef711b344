"""Users and audit entries as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from autotune.schemas.users import AuditEntry, User, WhoAmI
from server.cli.tables.elements import NO_VALUE, headed, moment, plural


def users(found: Sequence[User]) -> Table:
    """Return a table of users with their usage and limits."""
    table = headed(
        "user", "scope", ">campaigns", ">trials at most", ">node-hours this month", "last here", ""
    )
    for user in found:
        table.add_row(
            user.name,
            user.scope,
            _of(str(user.unfinished_campaigns), user.most_campaigns),
            NO_VALUE if user.most_trials is None else str(user.most_trials),
            _of(f"{user.node_hours_this_month:.1f}", user.node_hours_a_month),
            NO_VALUE if user.last_used_at is None else moment(user.last_used_at),
            "revoked" if user.revoked_at else "" if user.has_token else "through the proxy alone",
        )
    return table


def _of(used: str, limit: float | None) -> str:
    return used if limit is None else f"{used} of {limit:g}"


def unfinished(user: User) -> str:
    return f"{plural(user.unfinished_campaigns, 'campaign')} of {user.name} go on"


def who(me: WhoAmI) -> str:
    """Return the current user: `alice, who may submit`."""
    if me.name is None:
        return "the service's own user, who may do all"
    return f"{me.name}, with the scope {me.scope}"


def changes(found: Sequence[AuditEntry]) -> Table:
    """Return a table of audit entries."""
    table = headed("when", "user", "from", "what", ">campaign", ">status")
    for entry in found:
        table.add_row(
            moment(entry.at),
            entry.user or NO_VALUE,
            entry.address or "socket",
            entry.action,
            NO_VALUE if entry.campaign_id is None else str(entry.campaign_id),
            str(entry.status),
        )
    return table
