"""Obstacles to running any trial of a campaign on a cluster, found before a trial is queued."""

from __future__ import annotations

import os
from dataclasses import replace

from autotune.baseline import baseline_of
from autotune.measurement import SECONDS_PER_HOUR
from autotune.schemas.requests import CampaignCreate
from evaluators.cluster import ClusterProfile
from evaluators.ray.preflight import check as check_ray
from evaluators.slurm.commands import SlurmRefused
from evaluators.slurm.preflight import check
from search_spaces.errors import InvalidInput
from search_spaces.space import SearchSpace

OF_REQUEST = {
    "evaluator": "evaluator",
    "machine": "machine",
    "nodes": "nodes",
    "ray.address": "ray.address",
    "time_limit_s": "protocol.time_limit_s",
}


def obstacles(
    request: CampaignCreate, profile: ClusterProfile, space: SearchSpace
) -> list[InvalidInput]:
    """Return all obstacles by field of the request; empty if there is none.

    Raises:
        SlurmUnavailable, RayUnavailable: it does not respond, so nothing is known.
    """
    nodes, time_limit_s = _largest_job(request, profile, space)
    if request.evaluator == "ray":
        problems = check_ray(profile, nodes=nodes, machine=space.machine)
        return [_of_request(problem, request) for problem in problems]
    try:
        problems = check(profile, nodes=nodes, time_limit_s=time_limit_s, machine=space.machine)
    except SlurmRefused as error:
        valid = "a machine on which Slurm's commands work"
        return [InvalidInput("evaluator", request.evaluator, str(error), valid=valid)]
    return [_of_request(problem, request) for problem in problems]


def quickly(profile: ClusterProfile, *, limit_s: float) -> ClusterProfile:
    """Return the same profile with short timeouts for the cluster's answers."""
    limit_s = min(limit_s, profile.polling.command_limit_s)
    return replace(profile, polling=replace(profile.polling, command_limit_s=limit_s))


def _largest_job(
    request: CampaignCreate, profile: ClusterProfile, space: SearchSpace
) -> tuple[int, float]:
    """Return the nodes and seconds of the largest job that will be requested."""
    widest = int(space.lattice()["num_nodes"].max())
    baseline = baseline_of(request, space)
    widest = max(widest, baseline.num_nodes if baseline else 0)
    if request.screen_layers != "off":  # strategies with more nodes than trials share never run
        widest = min(widest, request.pool_nodes or request.nodes)
    if request.slurm is None or request.slurm.mode == "sbatch":
        return widest, request.protocol.time_limit_s
    if "SLURM_JOB_ID" in os.environ:
        return 1, 0.0  # the allocation that this service runs in already exists
    pool = profile.pilot.nodes or request.pool_nodes or request.nodes
    return max(widest, pool), profile.pilot.time_limit_h * SECONDS_PER_HOUR


def _of_request(problem: InvalidInput, request: CampaignCreate) -> InvalidInput:
    """Return a profile's problem as one of the request that chose the profile."""
    pilot = request.slurm is not None and request.slurm.mode == "pilot"
    field = problem.field
    if OF_REQUEST.get(field) == field:
        return problem
    if field in OF_REQUEST and not (pilot and field == "time_limit_s"):
        return InvalidInput(OF_REQUEST[field], problem.value, problem.reason, valid=problem.valid)
    name = "pilot.time_limit_h" if field == "time_limit_s" else field
    choice = request.slurm or request.ray
    chosen = choice.profile if choice else ""
    reason = f"{name} = {problem.value!r}: {problem.reason}"
    return InvalidInput(f"{request.evaluator}.profile", chosen, reason, valid=problem.valid)
