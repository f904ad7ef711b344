"""What `autotune doctor` says about a cluster profile, before anything is submitted with it."""

from __future__ import annotations

from evaluators.cluster import ClusterProfile
from evaluators.slurm.commands import SlurmError
from evaluators.slurm.preflight import check
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from server.cli.check import Check
from server.cli.figures import plural

TIME_LIMIT_S = 1200.0
"""Of a trial, where a campaign says nothing else."""


def of_profile(profile: ClusterProfile, *, nodes: int, machine: Machine) -> list[Check]:
    """A row for each thing that would keep trials from running; one row where nothing would."""
    name = f"profile {profile.name}"
    try:
        problems = check(profile, nodes=nodes, time_limit_s=TIME_LIMIT_S, machine=machine)
    except SlurmError as error:
        advice = "try again when Slurm answers: nothing is known of it now"
        return [Check(name=name, status="fail", found=str(error), advice=advice)]
    if problems:
        return [_failed(profile, problem) for problem in problems]
    found = f"trials on up to {plural(nodes, 'node')} of {machine.name} can be submitted"
    return [Check(name=name, status="ok", found=found)]


def _failed(profile: ClusterProfile, problem: InvalidInput) -> Check:
    value = "" if problem.value in (None, "") else f"{problem.value!r}: "
    return Check(
        name=f"{profile.name}: {problem.field}",
        status="fail",
        found=f"{value}{problem.reason}",
        advice=f"valid: {problem.valid}" if problem.valid else "change it in the profile",
    )
