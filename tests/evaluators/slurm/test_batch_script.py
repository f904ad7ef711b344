"""The scripts of a job, run by a real Slurm in folders with names that nobody should choose."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.files import write_whole
from autotune.schemas.choices import TrialState
from evaluators.attempt import BODY_SCRIPT, ENDED, Attempt
from evaluators.cluster.profile import Environment, Scheduling, Tasks
from evaluators.cluster.shell import sbatch_options
from evaluators.slurm.attempt_files import read_attempt_files
from evaluators.slurm.batch_script import (
    JOB_SCRIPT,
    LEASE,
    holding_script,
    job_script,
    run_script,
    write_scripts,
)
from tests.evaluators.slurm.trials import PROFILE, Backends, Lines, request, run
from tests.patience import PATIENCE_S, until

NASTY = "a b'c\"d$HOME`id`;e%j#f&(g)*\\h"


def test_the_head_asks_for_what_the_trial_needs(tmp_path: Path) -> None:
    """After what the profile asks for; what comes last holds."""
    attempt = Attempt(request=request(tmp_path, nodes=4, time_limit_s=1200.0), number=2)
    lines = job_script(attempt, PROFILE, exclude=["n03", "n05"]).splitlines()
    assert lines[0] == "#!/bin/bash"
    directives = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    own = directives.index(f"--job-name={attempt.name}")
    assert directives[:own] == [*sbatch_options(PROFILE, nodes=4, gpus_per_node=2)]
    assert directives[own:] == [
        f"--job-name={attempt.name}",
        f"--comment={attempt.name}",
        "--time=21",
        "--no-requeue",
        "--chdir=/",
        "--output=/dev/null",
        "--exclude=n03,n05",
    ]


def test_what_cannot_be_a_directive_is_refused(tmp_path: Path) -> None:
    profile = replace(PROFILE, slurm=Scheduling(account="a\n#SBATCH --nodes=999"))
    with pytest.raises(ValueError, match="not to be written"):
        job_script(Attempt(request=request(tmp_path), number=1), profile)


def test_a_profile_of_anything_is_bash(tmp_path: Path) -> None:
    profile = replace(
        PROFILE,
        environment=Environment(modules=(NASTY,), variables={"X": NASTY}, prologue="echo 'a' # b"),
        tasks=Tasks(srun=(f"--comment={NASTY}",)),
    )
    attempt = Attempt(request=request(tmp_path / NASTY), number=1)
    write_scripts(attempt, profile, Lines(), run_script(attempt))
    for script in (JOB_SCRIPT, BODY_SCRIPT):
        subprocess.run(["bash", "-n", attempt.folder / script], check=True)


def beside(commands: Path) -> dict[str, str]:
    """The variables of a step that finds these commands first."""
    path = f"{commands}:{os.environ['PATH']}"
    return {"PATH": path, "AUTOTUNE_JOB": "1", "AUTOTUNE_NODES": "n01"}


def test_a_hold_not_renewed_ends_whatever_the_clocks_say(tmp_path: Path) -> None:
    """Its node's clock goes a day back at each look; the runner's never comes in."""
    commands, folder, looks = tmp_path / "bin", tmp_path / "held", tmp_path / "looks"
    scripts = {
        "date": f"echo $((1800000000 - 86400 * $(wc -l <{looks})))",
        "sleep": f"echo >>{looks}; exec /bin/sleep 0.02",
    }
    commands.mkdir()
    folder.mkdir()
    looks.touch()
    for name, text in scripts.items():
        write_whole(commands / name, f"#!/bin/bash\n{text}\n", executable=True)
    lease = write_whole(folder / LEASE, "0 a\n")
    script = holding_script(
        PROFILE, name="held", folder=folder, nodes=1, gpus_per_node=1, exclude=()
    )

    def look_again(job: subprocess.Popen[bytes]) -> None:
        seen = looks.stat().st_size
        until(lambda: looks.stat().st_size > seen + 2 or job.poll() is not None)
        assert job.poll() is None

    with subprocess.Popen(["bash", "-c", script], env=beside(commands)) as job:
        for renewal in ("0 a\n", "600 b\n", ""):  # what it began with; and what cannot be read
            write_whole(lease, renewal)
            look_again(job)
        write_whole(lease, "1 c\n")
        assert job.wait(PATIENCE_S) == 0
    assert (folder / ENDED).read_text().startswith("0 ")


def test_a_trial_is_no_longer_for_a_clock_that_is_set_meanwhile(tmp_path: Path) -> None:
    """Its node's clock goes a day on at each look."""
    attempt = Attempt(request=request(tmp_path), number=1)
    commands, looks = tmp_path / "bin", "looks"
    for folder in (commands, attempt.folder, attempt.ended_folder):
        folder.mkdir(parents=True)
    date = f"echo >>{looks}; echo $((1800000000 + 86400 * $(wc -l <{looks}))).250"
    write_whole(commands / "date", f"#!/bin/bash\n{date}\n", executable=True)
    write_whole(attempt.folder / BODY_SCRIPT, "date")
    subprocess.run(["bash", "-c", run_script(attempt)], env=beside(commands), check=True)
    end = read_attempt_files(attempt.folder).end
    assert end
    assert (end.exit_code, end.began_at) == (0, 1800086400.25)
    assert end.duration_s < PATIENCE_S


@pytest.mark.xdist_group("slurm")
def test_nasty_names_reach_the_nodes_as_they_are(backends: Backends, tmp_path: Path) -> None:
    profile = replace(
        PROFILE,
        slurm=replace(PROFILE.slurm, directives=(f"--wckey={NASTY}",)),
        environment=Environment(variables={"MINE": NASTY}, prologue='export OURS="$MINE"'),
    )
    text = (
        "{srun} bash -c '[[ $SLURM_PROCID = 0 ]] && printf %s \"$OURS\" >printed'; echo 1 >result"
    )
    trial = request(tmp_path / NASTY)
    (outcome,) = run(backends.make(text, profile=profile), trial)
    assert outcome.status is TrialState.OK, outcome.error
    assert (trial.directory / "attempt-1" / "printed").read_text() == NASTY


@pytest.mark.xdist_group("slurm")
def test_a_users_variables_win_over_ours(backends: Backends, tmp_path: Path) -> None:
    profile = replace(PROFILE, environment=Environment(variables={"OMP_NUM_THREADS": "7"}))
    text = 'echo "$OMP_NUM_THREADS $PYTHONUNBUFFERED ${MASTER_ADDR}"; echo 1 >result'
    (outcome,) = run(backends.make(text, profile=profile), request(tmp_path))
    assert outcome.log_tail == "7 1 n01\n"
