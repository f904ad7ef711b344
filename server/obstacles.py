"""Obstacles to running any trial of a campaign on a cluster, found before a trial is queued."""

from __future__ import annotations

import os
from dataclasses import replace

from autotune.baseline import baseline_of
from autotune.measurement.metrics import SECONDS_PER_HOUR
from autotune.schemas.requests import CampaignCreate
from evaluators.cluster import ClusterProfile
from evaluators.ray.preflight import check as check_ray
from evaluators.slurm.commands import SlurmRefused
from evaluators.slurm.preflight import JobShape, check
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
    if request.evaluator == "ray":
        problems = check_ray(profile, nodes=_widest(request, space), machine=space.machine)
        return [_of_request(problem, request) for problem in problems]
    try:
        job = _largest_job(request, profile, space)
        problems = check(profile, job=job, machine=space.machine)
    except SlurmRefused as error:
        valid = "a machine on which Slurm's commands work"
        return [InvalidInput("evaluator", request.evaluator, str(error), valid=valid)]
    return [_of_request(problem, request) for problem in problems]


def quickly(profile: ClusterProfile, *, limit_s: float) -> ClusterProfile:
    limit_s = min(limit_s, profile.polling.command_limit_s)
    return replace(profile, polling=replace(profile.polling, command_limit_s=limit_s))


def _widest(request: CampaignCreate, space: SearchSpace) -> int:
    widest = int(space.lattice()["num_nodes"].max())
    baseline = baseline_of(request, space)
    widest = max(widest, baseline.num_nodes if baseline else 0)
    if request.screen_layers != "off":  # strategies with more nodes than trials share never run
        widest = min(widest, request.pool_nodes or request.nodes)
    return widest


def _largest_job(
    request: CampaignCreate, profile: ClusterProfile, space: SearchSpace
) -> JobShape | None:
    """Return the largest job that will be submitted; None if trials run in an allocation that this
    service was started in."""
    widest = _widest(request, space)
    if request.slurm is None or request.slurm.mode == "sbatch":
        return JobShape(nodes=widest, time_limit_s=request.protocol.time_limit_s)
    if "SLURM_JOB_ID" in os.environ:
        return None
    pool = profile.pilot.nodes or request.pool_nodes or request.nodes
    limit_s = profile.pilot.time_limit_h * SECONDS_PER_HOUR
    return JobShape(nodes=max(widest, pool), time_limit_s=limit_s, holds=True)


def _of_request(problem: InvalidInput, request: CampaignCreate) -> InvalidInput:
    field = problem.field
    if OF_REQUEST.get(field) == field:
        return problem
    if field in OF_REQUEST:
        return InvalidInput(OF_REQUEST[field], problem.value, problem.reason, valid=problem.valid)
    choice = request.slurm or request.ray
    chosen = choice.profile if choice else ""
    if field == "slurm":
        reason = f"{problem.reason} ({problem.value})"
    else:
        reason = f"{field} = {problem.value!r}: {problem.reason}"
    return InvalidInput(f"{request.evaluator}.profile", chosen, reason, valid=problem.valid)
