"""One campaign with its trials, or one trial with its log."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.client import CampaignHandle
from autotune.schemas import TrialState
from server.cli import tables
from server.cli.options import CampaignId, ServiceOptions
from server.cli.output import Json, document, out, text


def show(
    campaign: CampaignId,
    service: ServiceOptions,
    trial: Annotated[
        int | None, typer.Option("--trial", help="Only this trial, by number.")
    ] = None,
    log: Annotated[
        int, typer.Option("--log", min=0, help="With --trial: so many last lines of its log.")
    ] = 0,
    state: Annotated[
        TrialState | None, typer.Option("--state", help="Only trials in this state.")
    ] = None,
    sort: Annotated[
        str, typer.Option("--sort", help="By number, iteration_time_s, -tokens_per_s, …")
    ] = "number",
    json: Json = False,
) -> None:
    """Show a campaign and its trials, or one trial."""
    with service.client() as client:
        handle = client.campaign(campaign)
        if trial is not None:
            return _one(handle, trial, log=log, json=json)
        trials = handle.trials(state=state, sort=sort)
    if json:
        return document({"campaign": handle.campaign, "trials": trials})
    console = out()
    console.print(tables.campaign(handle.campaign))
    console.print()
    return console.print(tables.trials(trials))


def _one(handle: CampaignHandle, number: int, *, log: int, json: bool) -> None:
    trial = handle.trial(number)
    lines = handle.log(number, lines=log) if log else ""
    if json:
        return document({"trial": trial, "log": lines} if log else trial)
    out().print(tables.trial(trial))
    return text(lines) if lines else None
