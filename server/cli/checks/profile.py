"""Check whether trials can be submitted with a cluster profile."""

from __future__ import annotations

from evaluators.cluster import ClusterProfile
from evaluators.slurm.commands import SlurmError
from evaluators.slurm.preflight import check
from search_spaces.machine import Machine
from server.cli.checks.result import CheckResult
from server.cli.tables.elements import plural

TIME_LIMIT_S = 1200.0
"""Default time limit of a campaign's trials."""


def check_profile(profile: ClusterProfile, *, nodes: int, machine: Machine) -> list[CheckResult]:
    """Return one result per problem that would prevent trials from running; a single one if there
    is none."""
    name = f"profile {profile.name}"
    try:
        problems = check(profile, nodes=nodes, time_limit_s=TIME_LIMIT_S, machine=machine)
    except SlurmError as error:
        advice = "try again when Slurm answers: nothing is known of it now"
        return [CheckResult.fail(name, str(error), advice=advice)]
    if not problems:
        possible = f"trials on up to {plural(nodes, 'node')} of {machine.name} can be submitted"
        return [CheckResult.ok(name, possible)]
    return [
        CheckResult.fail(
            f"{profile.name}: {problem.field}",
            ("" if problem.value in (None, "") else f"{problem.value!r}: ") + problem.reason,
            advice=f"valid: {problem.valid}" if problem.valid else "change it in the profile",
        )
        for problem in problems
    ]
