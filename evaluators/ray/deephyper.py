"""Ray as a DeepHyper evaluator: a search in a notebook or a script, with no service.

evaluator = RayEvaluator(address="10.0.0.1:6379", space=space, directory=Path("trials"))
CBO(space.problem(seed=1), random_state=1).search(evaluator, max_evals=30)
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from deephyper.evaluator import Job

from autotune.schemas import Objective
from evaluators.cluster.profile import ClusterProfile
from evaluators.deephyper import BackendEvaluator
from evaluators.program import Program
from evaluators.ray.backend import RayBackend
from evaluators.ray.preflight import ADDRESS_NEEDED, ADDRESSES
from search_spaces.errors import InvalidInput
from search_spaces.space import SearchSpace


class RayEvaluator(BackendEvaluator):
    """Runs DeepHyper's jobs on a Ray cluster; see `evaluators.deephyper.BackendEvaluator`.

    A search can be restarted in the same `directory`: trials that kept running are found by name,
    and results are not measured again.

    Args:
        address: of the cluster's head, or `ray://HOST:PORT`. Default: the profile's.
        profile: environment and trainer. Default: the bundled trainer with Ray's own Python.
        num_workers: trials submitted at once. The cluster runs as many of them as its nodes hold.
        program: the trainer. Default: the profile's.

    Raises:
        InvalidInput: field `address`: there is none.
    """

    def __init__(
        self,
        *,
        space: SearchSpace,
        directory: Path,
        address: str = "",
        profile: ClusterProfile | None = None,
        num_workers: int = 4,
        objective: Objective = "tokens_per_s",
        warmup_iterations: int = 1,
        measured_iterations: int = 3,
        time_limit_s: float = 1200.0,
        seed: int = 0,
        program: Program | None = None,
    ) -> None:
        profile = profile or ClusterProfile(name="ray")
        address = address or profile.ray.address
        if not address:
            raise InvalidInput("address", None, ADDRESS_NEEDED, valid=ADDRESSES)
        profile = replace(profile, ray=replace(profile.ray, address=address))
        super().__init__(
            RayBackend(profile, program=program),
            space=space,
            directory=directory,
            objective=objective,
            num_workers=num_workers,
            warmup_iterations=warmup_iterations,
            measured_iterations=measured_iterations,
            time_limit_s=time_limit_s,
            seed=seed,
        )

    def close(self) -> list[Job]:
        """Detach from Ray. A search calls it at its end, and takes the jobs that it returns as its
        last ones."""
        cancelled: list[Job] = super().close()
        self._backend.close()
        return cancelled
