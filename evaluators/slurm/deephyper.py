"""Slurm as a DeepHyper evaluator: a search in a notebook, or inside a batch job, with no service.

evaluator = SlurmEvaluator(profile=load_profile("frontier"), space=space, directory=folder)
CBO(space.problem(seed=1), random_state=1).search(evaluator, max_evals=30)
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from deephyper.evaluator import Job

from autotune.schemas import Objective
from evaluators.backend import Backend
from evaluators.cluster.profile import ClusterProfile
from evaluators.deephyper import BackendEvaluator
from evaluators.program import Program
from evaluators.slurm.backend import SlurmBackend
from evaluators.slurm.pilot.backend import PilotBackend
from search_spaces.space import SearchSpace


class SlurmEvaluator(BackendEvaluator):
    """Runs DeepHyper's jobs through Slurm; see `evaluators.deephyper.BackendEvaluator`.

    A search can be restarted in the same `directory`: jobs that kept running are found by name, and
    results are not measured again.

    Args:
        mode: `sbatch`, a job per trial; `pilot`, steps of the allocation that this process runs in,
            or of one that it holds.
        directory: on a file system that the nodes see.
        num_workers: trials submitted at once. In pilot mode more of them than nodes wait here, so
            that free nodes are used at once.
        program: the trainer. Default: the profile's.
    """

    def __init__(
        self,
        *,
        profile: ClusterProfile,
        space: SearchSpace,
        directory: Path,
        mode: Literal["sbatch", "pilot"] = "sbatch",
        num_workers: int = 4,
        objective: Objective = "tokens_per_s",
        warmup_iterations: int = 1,
        measured_iterations: int = 3,
        time_limit_s: float = 1200.0,
        seed: int = 0,
        program: Program | None = None,
    ) -> None:
        backend: Backend = (
            SlurmBackend(profile, program=program)
            if mode == "sbatch"
            else PilotBackend(profile, program=program, nodes=space.nodes)
        )
        super().__init__(
            backend,
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
        """Detach from Slurm; a held allocation is released if nothing runs in it.

        A search calls it at its end, and takes the jobs that it returns as its last ones.
        """
        cancelled: list[Job] = super().close()
        self._backend.close()
        return cancelled
