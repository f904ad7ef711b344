"""What a profile asks for, held against a real Slurm."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings

from evaluators.cluster.profile import ClusterProfile, Environment, Scheduling, Tasks
from evaluators.cluster.shell import (
    directive_line,
    environment_lines,
    sbatch_directives,
    srun_words,
)
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import slurm
from tests.evaluators.cluster.texts import LINE
from tests.patience import until

__all__ = ["slurm"]

pytestmark = pytest.mark.xdist_group("slurm")


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(LINE)
@example(" a#b \"c' \\d $HOME `e` %j;&|")
@example("hetjob PackJob")
def test_sbatch_reads_any_directive_as_it_was_meant(
    slurm: Cluster, tmp_path: Path, value: str
) -> None:
    script = tmp_path / "job.sh"
    lines = ["#!/bin/bash", directive_line(f"--comment=<{value}>"), directive_line("--hold")]
    script.write_text("\n".join([*lines, "exit", ""]), "utf-8")
    job = slurm.command("sbatch", "--parsable", "--output=/dev/null", str(script)).strip()
    comment = slurm.command("squeue", "--noheader", f"--jobs={job}", "--format=%k")
    slurm.command("scancel", job)
    assert comment == f"<{value}>\n"


def test_a_job_has_the_shape_and_the_environment_of_its_profile(
    slurm: Cluster, tmp_path: Path
) -> None:
    """Tasks get the job's variables although the site submits without any (--export=NONE)."""
    profile = ClusterProfile(
        name="mine",
        slurm=Scheduling(
            partition="batch",
            gpu_request="gres" if slurm.gpus else "none",
            directives=("--export=NONE",),
        ),
        tasks=Tasks(cpus_per_task=1, srun=("--unbuffered",)),
        environment=Environment(variables={"ODD": 'it\'s $HOME; "a b"'}, prologue="export LATE=1"),
    )
    step = shlex.join(["srun", "--nodes=2", *srun_words(profile, gpus_per_node=2)])
    tell = shlex.quote('echo "$SLURM_PROCID/$SLURM_NTASKS $ODD $LATE $OMP_NUM_THREADS"')
    lines = [
        "#!/bin/bash",
        *sbatch_directives(profile, nodes=2, gpus_per_node=2),
        f"export SLURM_CONF={shlex.quote(slurm.environment['SLURM_CONF'])}",
        *environment_lines(profile),
        f"{step} bash -c {tell}",
        "touch ended",
    ]
    (tmp_path / "job.sh").write_text("\n".join([*lines, ""]))
    where = [f"--chdir={tmp_path}", "--output=job.log"]
    job = slurm.command("sbatch", "--parsable", *where, str(tmp_path / "job.sh")).strip()
    shown = slurm.command("scontrol", "show", "job", job)
    until((tmp_path / "ended").exists, "the job ends")
    printed = sorted((tmp_path / "job.log").read_text().splitlines())
    assert printed == [f'{rank}/4 it\'s $HOME; "a b" 1 1' for rank in range(4)]
    for words in ("NumNodes=2", "Partition=batch", "OverSubscribe=NO"):
        assert words in shown
