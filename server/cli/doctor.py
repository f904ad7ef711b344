"""Is this machine ready?"""

from __future__ import annotations

import typer
from rich.table import Table
from rich.text import Text

from server.cli.configured import StorageOptions
from server.cli.failures import Exit
from server.cli.output import Json, document, out

STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(storage: StorageOptions, json: Json = False) -> None:
    """Check this machine: Python, data folder, database, trial packages, GPUs, port, Slurm.

    Says for each what was found and what to do. Exit code 1 where something fails.
    """
    from server.cli.checkup import examine

    checks = examine(storage.settings())
    if json:
        document([check.as_dict() for check in checks])
    else:
        table = Table("", "check", "found", "what to do", box=None, pad_edge=False)
        for check in checks:
            status = Text(check.status, style=STYLES[check.status])
            table.add_row(status, check.name, Text(check.found), Text(check.advice))
        out().print(table)
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(Exit.FAILED)
