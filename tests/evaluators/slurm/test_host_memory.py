"""What a trial says when the memory that Slurm gave its job runs out, on a real Slurm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from evaluators.program import AttemptEnd
from evaluators.program.outcome import failed, failure_of
from evaluators.slurm.backend import SlurmBackend
from evaluators.trial import TrialOutcome, TrialRequest
from tests.cluster.fixtures import MakeCluster
from tests.evaluators.slurm.trials import PROFILE, Lines, request, run

pytestmark = pytest.mark.xdist_group("slurm")

KILLED = "echo 'slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Killed.'; exit 137"


@dataclass(frozen=True, kw_only=True)
class Failing(Lines):
    """A trial that fails, judged as those of trainers are."""

    def outcome(self, request: TrialRequest, folder: Path, ended: AttemptEnd) -> TrialOutcome:
        failure = failure_of(ended, self.cause(request, folder), folder)
        assert failure
        return failed(failure, folder, ended)


def test_a_kill_for_host_memory_names_what_the_job_had(
    make_slurm: MakeCluster, tmp_path: Path
) -> None:
    """A site gives 60 MB by default, which a job gets only on shared nodes."""
    shares = "Nodes=ALL Default=YES DefMemPerNode=60"
    make_slurm(partitions={"batch": shares, "counted": "Nodes=ALL DefMemPerCPU=70"})
    killed = "Slurm killed a task: the memory of its job ran out"
    for name, partition, exclusive, directives, error in (
        ("default", "batch", False, (), f"{killed}; the job had 60 MB on each node"),
        ("counted", "counted", False, (), f"{killed}; the job had 70 MB for each CPU"),
        ("requested", "batch", True, ("--mem=50",), f"{killed}; the job had 50 MB on each node"),
        ("whole", "batch", True, (), killed),
    ):
        slurm = replace(
            PROFILE.slurm, partition=partition, exclusive=exclusive, directives=directives
        )
        backend = SlurmBackend(replace(PROFILE, slurm=slurm), program=Failing(text=KILLED))
        try:
            (outcome,) = run(backend, request(tmp_path, name))
        finally:
            backend.close()
        assert (outcome.status, outcome.error) == (TrialState.CRASHED, error)
