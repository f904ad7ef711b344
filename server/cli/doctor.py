"""Is this machine ready, and is a cluster?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from search_spaces.errors import InvalidInput
from server.cli.choices import named_or_file
from server.cli.configured import StorageOptions
from server.cli.failures import Exit
from server.cli.output import Json, document, note, out

if TYPE_CHECKING:
    from evaluators.cluster import ClusterProfile
    from search_spaces.machine import Machine
    from server.cli.check import Check
    from server.settings import Settings

STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}
CLUSTER = "Is a cluster ready?"


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """The profile, and what a campaign would ask of it."""

    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            help="Look at this cluster profile as well: a name of `autotune profiles`.",
            rich_help_panel=CLUSTER,
        ),
    ] = None
    nodes: Annotated[
        int,
        typer.Option("--nodes", min=1, help="The most nodes of a trial.", rich_help_panel=CLUSTER),
    ] = 1
    machine: Annotated[
        str | None,
        typer.Option(
            "--machine",
            help="What its nodes are, for a profile that is for any machine.",
            rich_help_panel=CLUSTER,
        ),
    ] = None
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Run a short job on one node: does it see the data folder, torch and GPUs?",
            rich_help_panel=CLUSTER,
        ),
    ] = False

    def chosen_profile(self, folder: Path) -> ClusterProfile | None:
        """Raises InvalidInput(s) for one that cannot be used, and for what needs one."""
        from evaluators.cluster import load_profile

        if self.profile is not None:
            return load_profile(self.profile, folder=folder)
        if self.live or self.machine is not None:
            valid = "--profile, with a name of `autotune profiles`"
            raise InvalidInput("profile", None, "no profile was given", valid=valid)
        return None

    def chosen_machine(self, profile: ClusterProfile) -> Machine:
        """Raises InvalidInput(s) for one that is not known, and where none is."""
        from autotune.client.files import machine_choice
        from autotune.resolution import machine_of

        name = self.machine or profile.machine
        if not name:
            reason = f"the profile {profile.name!r} is for any machine, so say which"
            valid = "--machine, with a name of `autotune machines` or a TOML file"
            raise InvalidInput("machine", None, reason, valid=valid)
        return machine_of(machine_choice(named_or_file(name)))


def doctor(storage: StorageOptions, cluster: ClusterOptions, json: Json = False) -> None:
    """Check this machine: Python, data folder, database, trial packages, GPUs, port, Slurm.

    With --profile also whether a campaign with that cluster profile could be submitted, and with
    --live whether a node has what trials need. Says for each what was found and what to do. Exit
    code 1 where something fails.
    """
    settings = storage.settings()
    profile = cluster.chosen_profile(settings.profiles_dir)
    machine = cluster.chosen_machine(profile) if profile else None
    checks = list(_checks(settings, cluster, profile, machine))
    if json:
        document([check.as_dict() for check in checks])
    else:
        out().print(_table(checks))
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(Exit.FAILED)


def _checks(
    settings: Settings,
    cluster: ClusterOptions,
    profile: ClusterProfile | None,
    machine: Machine | None,
) -> Iterator[Check]:
    """The job is sent last, and only where nothing that is known already would keep it."""
    from server.cli.checkup import examine, nearest_existing

    yield from examine(settings)
    if profile is None or machine is None:
        return
    from server.cli.live_checkup import on_a_node
    from server.cli.profile_checkup import of_profile

    found = of_profile(profile, nodes=cluster.nodes, machine=machine)
    yield from found
    if cluster.live and all(check.status != "fail" for check in found):
        folder = nearest_existing(settings.data_dir)
        yield from on_a_node(profile, gpus_per_node=machine.gpus_per_node, folder=folder, tell=note)


def _table(checks: list[Check]) -> Table:
    table = Table("", "check", "found", "what to do", box=None, pad_edge=False)
    for check in checks:
        status = Text(check.status, style=STYLES[check.status])
        table.add_row(status, Text(check.name), Text(check.found), Text(check.advice))
    return table
