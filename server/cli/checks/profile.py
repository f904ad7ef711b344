"""Whether trials could be submitted with a cluster profile, before any is."""

from __future__ import annotations

from evaluators.cluster import ClusterProfile
from evaluators.slurm.commands import SlurmError
from evaluators.slurm.preflight import check
from search_spaces.machine import Machine
from server.cli.checks.result import CheckResult
from server.cli.tables.elements import plural

TIME_LIMIT_S = 1200.0
"""Of a trial, where a campaign says nothing else."""


def check_profile(profile: ClusterProfile, *, nodes: int, machine: Machine) -> list[CheckResult]:
    """Return a result for each thing that would keep trials from running; one where none would."""
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
