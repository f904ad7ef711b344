"""The demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from server.cli.output import Json


def demo(
    once: Annotated[
        bool, typer.Option("--once", help="End after the two campaigns instead of serving on.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option("--port", help="Port of the pages.  \\[default: 8765, or a free one]"),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir", help="Where everything is kept.  \\[default: a new temporary folder]"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """See it work: start a service, tune two models, print what it recommends.

    A tiny GPT is tuned by real training runs on this machine; GPT-175B on 16 nodes of Frontier is
    simulated. It takes about two minutes, then the pages stay up until Ctrl-C. With --json the
    last line of stdout is one JSON object.
    """
    from server.demo import run

    run(once=once, port=port, data_dir=data_dir, json=json)
