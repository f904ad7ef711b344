"""Check whether trials can run on a Ray cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from importlib.metadata import version

from autotune.words.quantities import plural
from evaluators.cluster import ClusterProfile
from evaluators.ray.connection import (
    INSTALL,
    RayClusterFacts,
    RayRefused,
    RayUnavailable,
    installed,
)
from evaluators.ray.preflight import ADDRESS_NEEDED, check_facts, look
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from server.cli.checks import CheckResult

SHOWN = ("GPU", "CPU")
"""Kinds of resources shown of a node."""


def check_ray(
    profile: ClusterProfile | None, address: str | None, *, machine: Machine | None, nodes: int
) -> list[CheckResult]:
    """Return whether Ray is installed, its cluster responds, and trials could run on it.

    Args:
        machine: of the nodes; None if unknown.
        nodes: of the widest trial.
    """
    profile = profile or ClusterProfile(name="ray")
    if address is not None:
        profile = replace(profile, ray=replace(profile.ray, address=address))
    if not installed():
        return [CheckResult.fail("Ray", "the Python package is not installed", advice=INSTALL)]
    results = [CheckResult.ok("Ray", f"{version('ray')} is installed here")]
    if not profile.ray.address:
        advice = "--ray-address HOST:PORT, or address under [ray] in the profile"
        return [*results, CheckResult.fail("Ray cluster", ADDRESS_NEEDED, advice=advice)]
    try:
        facts = look(profile, machine)
    except RayUnavailable as error:
        advice = "is it up, and this machine a node of it? From any other: ray://HOST:10001"
        return [*results, CheckResult.fail("Ray cluster", str(error), advice=advice)]
    except RayRefused as error:
        advice = "use its versions of Ray and Python here"
        return [*results, CheckResult.fail("Ray cluster", str(error), advice=advice)]
    results.append(CheckResult.ok("Ray cluster", _described(facts)))
    problems = check_facts(profile, facts, nodes=nodes, machine=machine)
    if machine is not None and not problems:
        possible = f"trials on up to {plural(nodes, 'node')} of {machine.name} can be placed"
        results.append(CheckResult.ok("Ray trials", possible))
    return [*results, *map(_failed, problems)]


def _described(facts: RayClusterFacts) -> str:
    kinds = Counter(
        ", ".join(f"{node[kind]:g} {kind}" for kind in SHOWN if node.get(kind)) or "no CPU"
        for node in facts.nodes
    )
    nodes = "; ".join(f"{count} with {kind}" for kind, count in kinds.most_common())
    return f"answers; {plural(len(facts.nodes), 'node')}: {nodes}"


def _failed(problem: InvalidInput) -> CheckResult:
    advice = f"valid: {problem.valid}" if problem.valid else "change it in the profile"
    return CheckResult.fail(f"Ray: {problem.field}", problem.reason, advice=advice)
