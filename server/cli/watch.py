"""Following a campaign until it is at rest."""

from __future__ import annotations

import typer

from autotune.client import CampaignHandle
from autotune.errors import ApiError
from autotune.schemas import CampaignState, Recommendation, TrialState
from server.cli import tables
from server.cli.best import recommended
from server.cli.failures import Exit, Failed
from server.cli.options import CampaignId, ServiceOptions
from server.cli.output import Json, document, note, out
from server.cli.progress import Board


def watch(campaign: CampaignId, service: ServiceOptions, json: Json = False) -> None:
    """Follow a campaign until it is at rest, then print what it recommends.

    Ctrl-C ends the watching, not the campaign. Exit code 1 where there is no result.
    """
    with service.client() as client:
        follow(client.campaign(campaign), json=json)


def follow(handle: CampaignHandle, *, json: bool) -> None:
    """Show progress, then the result; raises Failed where the campaign ended without one."""
    try:
        with Board([handle.campaign]) as board:
            board.begin(handle.trials(state=TrialState.PENDING))
            for event in handle.watch():
                board.tell(event)
    except KeyboardInterrupt:
        note(
            f"campaign {handle.id} goes on without being watched: "
            f"`autotune watch {handle.id}` watches it again, `autotune cancel {handle.id}` ends it"
        )
        raise
    _finish(handle, json=json)


def _finish(handle: CampaignHandle, *, json: bool) -> None:
    now = handle.refresh().campaign
    answer = _recommendation(handle) if json else recommended(handle).recommendation
    if json:
        document({"campaign": now, "recommendation": answer})
    elif answer is not None:
        out().print(tables.recommendation(answer))
    if now.state == CampaignState.FAILED:
        raise Failed(f"campaign {now.id} failed: {now.reason}")
    if now.state != CampaignState.DONE:
        note(f"campaign {now.id} is {now.state}" + (f": {now.reason}" if now.reason else ""))
    if answer is None:
        raise typer.Exit(Exit.FAILED)


def _recommendation(handle: CampaignHandle) -> Recommendation | None:
    try:
        return handle.best().recommendation
    except ApiError as error:
        if error.status != 404:
            raise
        return None
