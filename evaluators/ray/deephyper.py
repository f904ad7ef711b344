"""Ray as a DeepHyper evaluator: a search in a notebook or a script, with no service.

evaluator = RayEvaluator(address="10.0.0.1:6379", space=space, directory=Path("trials"))
CBO(space.problem(seed=1), random_state=1).search(evaluator, max_evals=30)
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Unpack

from evaluators.cluster.profile import ClusterProfile
from evaluators.deephyper import ClusterEvaluator, SearchOptions
from evaluators.program import Program
from evaluators.ray.backend import RayBackend
from evaluators.ray.preflight import ADDRESS_NEEDED, ADDRESSES
from search_spaces.errors import InvalidInput
from search_spaces.space import SearchSpace


class RayEvaluator(ClusterEvaluator):
    """Runs DeepHyper's jobs on a Ray cluster.

    Args:
        address: of the cluster's head, or `ray://HOST:PORT`. Default: the profile's.
        profile: environment and trainer. Default: the bundled trainer with Ray's own Python.
        program: the trainer. Default: the profile's.
        options: of `evaluators.deephyper.BackendEvaluator`. `num_workers` is the number of trials
            submitted at once; the cluster runs as many of them as its nodes hold.

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
        program: Program | None = None,
        **options: Unpack[SearchOptions],
    ) -> None:
        profile = profile or ClusterProfile(name="ray")
        address = address or profile.ray.address
        if not address:
            raise InvalidInput("address", None, ADDRESS_NEEDED, valid=ADDRESSES)
        profile = replace(profile, ray=replace(profile.ray, address=address))
        backend = RayBackend(profile, program=program)
        super().__init__(backend, space=space, directory=directory, **options)
