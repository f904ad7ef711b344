"""Live view of a service's activity."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from server.cli.options import ServiceOptions
from server.cli.output import Json, document, out

LINES_BESIDE_TRIALS = 8


def top(
    service: ServiceOptions,
    once: Annotated[bool, typer.Option("--once", help="Print once instead of updating.")] = False,
    every: Annotated[
        float, typer.Option("--every", min=0.5, help="Seconds between updates.")
    ] = 2.0,
    json: Json = False,
) -> None:
    """Show live which runners, campaigns and trials run, and why others wait, until Ctrl-C.

    With --json, or if stdout is not a terminal, print once.
    """
    from server.cli.tables import service as service_table

    console = out()
    with service.client() as client:
        if json:
            document(client.activity())
        elif once or not console.is_terminal:
            console.print(service_table.activity(client.activity()))
        else:
            from rich.live import Live

            with Live(console=console, screen=True, auto_refresh=False) as live:
                while True:
                    found = client.activity()
                    others = len(found.runners) + len(found.campaigns) + LINES_BESIDE_TRIALS
                    room = max(3, console.height - others)
                    live.update(service_table.activity(found, most_trials=room), refresh=True)
                    time.sleep(every)
