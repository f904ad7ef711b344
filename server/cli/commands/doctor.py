"""Check this machine, and optionally a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import typer
from rich.text import Text

from search_spaces.errors import InvalidInput
from server.cli.failures import ExitCode
from server.cli.option_groups import OptionGroup, option
from server.cli.options import StorageOptions, name_or_file, named_machine
from server.cli.output import Json, document, note, out

if TYPE_CHECKING:
    from evaluators.cluster import ClusterProfile
    from search_spaces.machine import Machine
    from server.cli.checks import CheckResult
    from server.cli.tables.elements import TableColumns
    from server.settings import Settings

STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(OptionGroup):
    """A profile, and what a campaign would request of it."""

    PANEL: ClassVar[str] = "Is a cluster ready?"

    profile: str | None = option(
        "--profile", "Also check this cluster profile: a name of `autotune profiles`."
    )
    ray: bool = option(
        "--ray",
        "Check the Ray cluster of --ray-address or --profile instead of Slurm.",
        value=False,
    )
    ray_address: str | None = option(
        "--ray-address",
        "Address of the Ray cluster: its head, or ray://HOST:PORT.",
        default="the profile's",
        metavar="HOST:PORT",
    )
    nodes: int = option("--nodes", "Maximum nodes of a trial.", min=1, value=1)
    machine: str | None = option("--machine", "Machine of the nodes, for a profile without one.")
    live: bool = option(
        "--live",
        "Run a short job on one node: check the data folder, torch, GPUs, and the imports of "
        "trials.",
        value=False,
    )

    def load_profile(self, folder: Path) -> ClusterProfile | None:
        """Return the profile; None if none was named and none is needed.

        Raises:
            InvalidInput, InvalidInputs: it is invalid, or missing although one is needed.
        """
        from evaluators.cluster import load_profile

        if self.profile is not None:
            return load_profile(self.profile, folder=folder)
        if self.on_ray and not self.live:
            return None
        if self.live or self.machine is not None:
            flag = "--live" if self.live else "--machine"
            valid = "a name of `autotune profiles`"
            raise InvalidInput("profile", None, f"{flag} needs a cluster profile", valid=valid)
        return None

    @property
    def on_ray(self) -> bool:
        return self.ray or self.ray_address is not None

    def load_machine(self, profile: ClusterProfile | None) -> Machine:
        """Return the machine of the profile's nodes; raises InvalidInput(s) if it is unknown."""
        from autotune.client.question import machine_choice
        from autotune.schemas.resolution import machine_of

        named = (profile.name, profile.machine) if profile else ("", "")
        name = self.machine or named_machine(*named)
        return machine_of(machine_choice(name_or_file(name)))


def doctor(storage: StorageOptions, cluster: ClusterOptions, json: Json = False) -> None:
    """Check this machine: Python, data folder, database, trial packages, GPUs, port, Slurm.

    With --profile, also check whether a campaign with that cluster profile can be submitted, and
    with --live whether a node has the software for trials. With --ray, check a Ray cluster and its
    nodes. Prints what was found and what to do. Exit code 1 if a check fails.
    """
    from server.cli.tables import elements as elements_table

    settings = storage.settings()
    profile = cluster.load_profile(settings.profiles_dir)
    known = cluster.machine or (profile and (profile.machine or not cluster.on_ray))
    machine = cluster.load_machine(profile) if known else None
    results = list(_checks(settings, cluster, profile, machine))
    if json:
        document([asdict(result) for result in results])
    else:
        columns: TableColumns[CheckResult] = (
            ("", lambda result: Text(result.status, style=STYLES[result.status])),
            ("check", lambda result: result.name),
            ("found", lambda result: result.found),
            ("what to do", lambda result: result.advice),
        )
        out().print(elements_table.table(results, columns))
    if any(result.status == "fail" for result in results):
        raise typer.Exit(ExitCode.FAILED)


def _checks(
    settings: Settings,
    cluster: ClusterOptions,
    profile: ClusterProfile | None,
    machine: Machine | None,
) -> Iterator[CheckResult]:
    """Yield the results of all checks.

    The job is submitted last, and only if no check so far has ruled it out.
    """
    from server.cli.checks.machine import check_machine, nearest_existing
    from server.cli.checks.slurm import check_slurm

    yield from check_machine(settings)
    if cluster.on_ray:
        from server.cli.checks.ray import check_ray

        yield from check_ray(profile, cluster.ray_address, machine=machine, nodes=cluster.nodes)
        return
    yield from check_slurm(settings)
    if profile is None or machine is None:
        return
    from server.cli.checks.slurm import check_node, check_profile

    results = check_profile(profile, nodes=cluster.nodes, machine=machine)
    yield from results
    if cluster.live and all(result.status != "fail" for result in results):
        folder = nearest_existing(settings.data_dir)
        yield from check_node(
            profile, gpus_per_node=machine.gpus_per_node, folder=folder, tell=note
        )
