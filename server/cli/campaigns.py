"""Campaigns in the service: list, pause, resume, cancel, extend, remove."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import islice
from typing import Annotated

import typer

from autotune.client import CampaignHandle
from autotune.schemas import CampaignState
from search_spaces.errors import InvalidInput
from server.cli import tables
from server.cli.choices import given
from server.cli.options import CampaignId, ServiceOptions
from server.cli.output import Json, document, note, out

BUDGET = "When it ends, whichever comes first"
Deadline = Annotated[
    str | None,
    typer.Option(
        "--deadline",
        help="End by this time: 2030-01-31T18:00 (local) or with a zone.",
        rich_help_panel=BUDGET,
    ),
]
MaxNodeHours = Annotated[
    float | None,
    typer.Option(
        "--max-node-hours", help="End when trials have held this much.", rich_help_panel=BUDGET
    ),
]


def ls(
    service: ServiceOptions,
    state: Annotated[
        CampaignState | None, typer.Option("--state", help="Only those in this state.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The newest so many.")] = 50,
    json: Json = False,
) -> None:
    """List campaigns, newest first."""
    with service.client() as client:
        found = [handle.campaign for handle in islice(client.campaigns(state=state), limit)]
    if json:
        return document(found)
    if not found:
        return note("no campaigns: submit one with `autotune submit`")
    return out().print(tables.campaigns(found))


def pause(campaign: CampaignId, service: ServiceOptions, json: Json = False) -> None:
    """Start no further trials until `autotune resume`; those that run end by themselves."""
    _do(campaign, service, CampaignHandle.pause, json=json)


def resume(campaign: CampaignId, service: ServiceOptions, json: Json = False) -> None:
    """Go on with a paused campaign."""
    _do(campaign, service, CampaignHandle.resume, json=json)


def cancel(campaign: CampaignId, service: ServiceOptions, json: Json = False) -> None:
    """End a campaign and its running trials; what was measured is kept."""
    _do(campaign, service, CampaignHandle.cancel, json=json)


def extend(
    campaign: CampaignId,
    service: ServiceOptions,
    max_trials: Annotated[
        int | None, typer.Option("--max-trials", help="New number of trials in all.")
    ] = None,
    max_node_hours: MaxNodeHours = None,
    deadline: Deadline = None,
    json: Json = False,
) -> None:
    """Raise a campaign's budget; one that is done goes on."""
    budget = given(
        max_trials=max_trials, max_node_hours=max_node_hours, deadline=deadline_of(deadline)
    )
    if not budget:
        valid = "--max-trials, --max-node-hours or --deadline"
        raise InvalidInput("budget", None, "nothing to extend it by was given", valid=valid)
    _do(campaign, service, lambda handle: handle.extend(**budget), json=json)


def rm(campaign: CampaignId, service: ServiceOptions, json: Json = False) -> None:
    """Delete a campaign with its trials. One that is worked on must be cancelled first."""
    with service.client() as client:
        client.campaign(campaign).delete()
    if json:
        return document({"deleted": campaign})
    return note(f"campaign {campaign} is deleted")


def _do(
    campaign: int,
    service: ServiceOptions,
    action: Callable[[CampaignHandle], CampaignHandle],
    *,
    json: bool,
) -> None:
    with service.client() as client:
        after = action(client.campaign(campaign)).campaign
    if json:
        document(after)
    else:
        out().print(tables.campaign(after))


def deadline_of(text: str | None) -> datetime | None:
    """An ISO 8601 time; this machine's zone where it names none. Raises InvalidInput."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        reason = "is not a time in ISO 8601"
        raise InvalidInput("deadline", text, reason, valid="2030-01-31T18:00+01:00") from None
