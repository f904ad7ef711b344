"""Slurm as a DeepHyper evaluator: a search in a notebook, or inside a batch job, with no service.

evaluator = SlurmEvaluator(profile=load_profile("frontier"), space=space, directory=folder)
CBO(space.problem(seed=1), random_state=1).search(evaluator, max_evals=30)
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Unpack

from evaluators.cluster.profile import ClusterProfile
from evaluators.deephyper import ClusterEvaluator, SearchOptions
from evaluators.program import Program
from evaluators.slurm.backend import SlurmBackend
from evaluators.slurm.pilot.backend import PilotBackend
from evaluators.trial import Backend
from search_spaces.space import SearchSpace


class SlurmEvaluator(ClusterEvaluator):
    """Runs DeepHyper's jobs through Slurm.

    Args:
        mode: `sbatch`, a job per trial; `pilot`, steps of the allocation that this process runs in,
            or of one that it holds.
        directory: on a file system that the nodes see.
        program: the trainer. Default: the profile's.
        options: of `evaluators.deephyper.BackendEvaluator`. `num_workers` is the number of trials
            submitted at once; in pilot mode more of them than nodes wait here, so that free nodes
            are used at once.
    """

    def __init__(
        self,
        *,
        profile: ClusterProfile,
        space: SearchSpace,
        directory: Path,
        mode: Literal["sbatch", "pilot"] = "sbatch",
        program: Program | None = None,
        **options: Unpack[SearchOptions],
    ) -> None:
        backend: Backend = (
            SlurmBackend(profile, program=program)
            if mode == "sbatch"
            else PilotBackend(profile, program=program, nodes=space.nodes)
        )
        super().__init__(backend, space=space, directory=directory, **options)
