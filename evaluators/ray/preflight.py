"""Checks of a Ray cluster before a trial is submitted."""

from __future__ import annotations

from evaluators.cluster.profile import ClusterProfile
from evaluators.program.interpreter import ANY
from evaluators.ray.backend import bundle_of
from evaluators.ray.connection import RayClusterFacts, RayConnection, RayRefused
from evaluators.ray.driver import NEEDED
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine

ADDRESS_NEEDED = "the ray evaluator needs the address of a Ray cluster"
ADDRESSES = "HOST:PORT, ray://HOST:PORT, or a profile with an address under [ray]"


class NodesLacking(InvalidInput):
    """The cluster has too few nodes now; it may have enough later."""


def look(profile: ClusterProfile, machine: Machine | None) -> RayClusterFacts:
    """Query the profile's cluster for what trials on this machine need.

    Raises:
        RayUnavailable: it does not answer.
        RayRefused: it cannot be used from here.
    """
    connection = RayConnection(profile.ray.address, limit_s=profile.polling.command_limit_s)
    try:
        facts: RayClusterFacts = connection.ask(
            "look",
            bundle=bundle_of(machine, profile) if machine else {},
            packages=NEEDED if _runs_in_rays_python(profile) else (),
        )
    finally:
        connection.close()
    return facts


def check(profile: ClusterProfile, *, nodes: int, machine: Machine) -> list[InvalidInput]:
    """Return all problems that can be known from here.

    Args:
        nodes: of the widest trial.
        machine: of the trials.

    Raises:
        RayUnavailable: the cluster does not answer, so that nothing is known.
    """
    if not profile.ray.address:
        return [InvalidInput("ray.address", None, ADDRESS_NEEDED, valid=ADDRESSES)]
    try:
        facts = look(profile, machine)
    except RayRefused as refusal:
        valid = "a machine with the cluster's versions of Ray and Python"
        return [InvalidInput("evaluator", "ray", str(refusal), valid=valid)]
    return check_facts(profile, facts, nodes=nodes, machine=machine)


def check_facts(
    profile: ClusterProfile, facts: RayClusterFacts, *, nodes: int, machine: Machine | None
) -> list[InvalidInput]:
    problems = _check_nodes(profile, facts, nodes, machine) if machine else []
    return [*problems, *_check_python(profile, facts)]


def _check_nodes(
    profile: ClusterProfile, facts: RayClusterFacts, nodes: int, machine: Machine
) -> list[InvalidInput]:
    most = max(facts.fitting, profile.ray.most_nodes or 0)
    if nodes <= most:
        return []
    bundle = bundle_of(machine, profile)
    wanted = " and ".join(f"{count:g} {kind}" for kind, count in bundle.items())
    reason = f"the Ray cluster has {facts.fitting} nodes with {wanted} each"
    return [NodesLacking("nodes", nodes, reason, valid=f"1 to {most}" if most else "another one")]


def _check_python(profile: ClusterProfile, facts: RayClusterFacts) -> list[InvalidInput]:
    if not _runs_in_rays_python(profile) or not facts.lacks:
        return []
    lacks = ", ".join(facts.lacks)
    reason = f"Ray's Python on a node lacks {lacks}, which the trainer needs"
    return [
        InvalidInput("python", ANY, reason, valid="pip install 'autotune[trials]' on the nodes")
    ]


def _runs_in_rays_python(profile: ClusterProfile) -> bool:
    environment = profile.environment
    theirs = profile.python or profile.container or environment.modules
    return not (theirs or environment.virtual_environment) and not profile.adapter
