"""The backends of one runner."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from autotune.schemas.requests import CampaignCreate
from evaluators.cluster import ClusterProfile, profile_from_dict
from evaluators.local.backend import LocalBackend, LocalProgramBackend
from evaluators.program.support import capabilities_of
from evaluators.ray.backend import RayBackend
from evaluators.simulated import SimulatedBackend
from evaluators.slurm.backend import SlurmBackend
from evaluators.slurm.job_tracker import JobTracker
from evaluators.slurm.pilot.backend import PilotBackend
from evaluators.trial import Backend
from search_spaces.space import SearchSpace
from server.obstacles import obstacles
from server.runner.admission import ClusterCheck

CHECKS_AT_ONCE = 4


class EvaluatorBackends:
    """One backend object per kind, created on first use.

    Args:
        cluster_retry_s: seconds until a cluster that did not respond is retried.
    """

    def __init__(self, *, cluster_retry_s: float) -> None:
        self._cluster_retry_s = cluster_retry_s
        self._made: dict[Hashable, Backend] = {}
        self._trackers: dict[Hashable, JobTracker] = {}
        self._threads = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="cluster-check")

    def cluster_check(
        self, request: CampaignCreate, space: SearchSpace, *, profile: Mapping[str, Any] | None
    ) -> ClusterCheck | None:
        """Return the check of the cluster that the trials need; None if they need none."""
        if request.evaluator not in {"slurm", "ray"}:
            return None
        return ClusterCheck(
            partial(obstacles, request, _profile_of(profile), space),
            threads=self._threads,
            retry_s=self._cluster_retry_s,
        )

    def of(self, request: CampaignCreate, *, profile: Mapping[str, Any] | None) -> Backend:
        """Return the backend of a campaign's trials, which it may share with other campaigns.

        There is one simulator per time scale and adapter, one Slurm backend per profile and mode,
        one Ray backend per profile, and one local backend per adapter.

        Args:
            profile: of the cluster, or of the adapter, as stored with the campaign.
        """
        if request.evaluator == "local":
            if profile is None:
                return self._once("local", LocalBackend)
            own = _profile_of(profile)
            return self._once(("local", repr(own)), partial(LocalProgramBackend, own))
        if request.evaluator == "simulated":
            program = capabilities_of("simulated", _profile_of(profile) if profile else None)
            simulated = partial(SimulatedBackend, program, time_scale=request.time_scale)
            return self._once((request.time_scale, repr(profile)), simulated)
        cluster = _profile_of(profile)
        if request.evaluator == "ray":
            return self._once(("ray", repr(cluster)), partial(RayBackend, cluster))
        tracker = self._tracker(cluster)
        mode = request.slurm.mode if request.slurm else "sbatch"
        make: Callable[[], Backend] = partial(SlurmBackend, cluster, tracker=tracker)
        if mode == "pilot":
            nodes = request.pool_nodes or request.nodes
            make = partial(PilotBackend, cluster, tracker=tracker, nodes=nodes)
        return self._once((mode, repr(cluster)), make)

    def leave_allocations(self) -> None:
        for backend in self._made.values():
            if isinstance(backend, PilotBackend):
                backend.leave()

    def close(self) -> None:
        """End all local trials; a scheduler's jobs continue."""
        for backend in self._made.values():
            backend.close()
        for tracker in self._trackers.values():
            tracker.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._made.clear()
        self._trackers.clear()

    def _once(self, key: Hashable, make: Callable[[], Backend]) -> Backend:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _tracker(self, profile: ClusterProfile) -> JobTracker:
        """Return the thread that talks to Slurm, shared by profiles.

        Profiles with another polling interval, or that leave other options to the user's defaults,
        have their own.
        """
        slurm = profile.slurm
        named = (slurm.account, slurm.partition, slurm.qos, slurm.reservation, slurm.constraint)
        key = (profile.polling, *(bool(text) for text in named))
        if key not in self._trackers:
            self._trackers[key] = JobTracker.of(profile)
        return self._trackers[key]


def _profile_of(fields: Mapping[str, Any] | None) -> ClusterProfile:
    return profile_from_dict(fields or {}, source="campaign")
