"""Check whether trials can run through Slurm on this machine, and with a cluster profile."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Mapping

from evaluators.cluster import ClusterProfile
from evaluators.slurm.commands import (
    AccountingDisabled,
    Slurm,
    SlurmError,
    SlurmUnavailable,
    run_within,
)
from evaluators.slurm.preflight import check
from search_spaces.machine import Machine
from server.cli.checks import CheckResult
from server.cli.tables.elements import plural
from server.settings import Settings
from server.store.engine import is_shared

CLIENT = ("sbatch", "squeue", "sacct", "scancel", "srun", "sinfo", "scontrol")
LIMIT_S = 10.0
SHOWN_PARTITIONS = 6


def check_slurm(settings: Settings) -> list[CheckResult]:
    """Return the results; a single one if Slurm is not installed or does not respond."""
    commands = client()
    if not any(shutil.which(name) for name in CLIENT):
        return [commands]
    slurm = Slurm(limit_s=LIMIT_S)
    began = time.monotonic()
    try:
        known = slurm.partitions()
    except SlurmError as error:
        return [commands, silent(error), munge(), *allocation()]
    took_s = time.monotonic() - began
    answer = f"{_output_of(slurm, 'sinfo', '--version')}, answers in {took_s:.2f} s"
    return [
        commands,
        CheckResult.ok("Slurm controller", answer),
        partitions(known),
        accounting(slurm),
        trial_folder(slurm, settings),
        *allocation(),
    ]


def client() -> CheckResult:
    """Return whether Slurm's commands are installed; a machine without any of them passes."""
    present = [name for name in CLIENT if shutil.which(name)]
    if len(present) == len(CLIENT):
        return CheckResult.ok("Slurm", ", ".join(present))
    if not present:
        none = "none on this machine's PATH; launch scripts can still be written"
        return CheckResult.ok("Slurm", none)
    lacking = ", ".join(name for name in CLIENT if name not in present)
    advice = "load the site's Slurm module, or complete the client's installation (slurm-client)"
    return CheckResult.warn("Slurm", f"without {lacking}", advice=advice)


def silent(error: SlurmError) -> CheckResult:
    """Return what to do about a controller that does not respond."""
    advice = "trials wait until it does; is this a login node, and SLURM_CONF the site's own?"
    if not isinstance(error, SlurmUnavailable):
        advice = "ask the site whether this user may use Slurm"
    return CheckResult.warn("Slurm controller", f"does not answer: {error}", advice=advice)


def munge() -> CheckResult:
    """Return whether munge works; only relevant if Slurm does not respond."""
    if shutil.which("munge") is None:
        return CheckResult.ok("munge", "no client; this site may not use it")
    words = ("munge", "--no-input", "--output=/dev/null")
    code, _, errors = run_within(words, limit_s=LIMIT_S, environment=os.environ)
    if code == 0:
        return CheckResult.ok("munge", "works; the problem is elsewhere")
    reason = " ".join(errors.split()).removeprefix("munge: Error: ") or "does not answer"
    advice = "Slurm needs it to authenticate users: ask the site to start munged on this node"
    return CheckResult.warn("munge", reason, advice=advice)


def partitions(known: Mapping[str, Mapping[str, str]]) -> CheckResult:
    """Return the partitions that this user sees, the first of many."""
    texts = []
    for name, fields in known.items():
        limit, state = fields.get("MaxTime", "UNLIMITED"), fields.get("State", "UP")
        notes = [
            f"{fields.get('TotalNodes', '?')} nodes",
            "no time limit" if limit == "UNLIMITED" else f"at most {limit}",
            *(["the default"] if fields.get("Default") == "YES" else []),
            *([state.lower()] if state != "UP" else []),
        ]
        texts.append(f"{name} ({', '.join(notes)})")
    if not texts:
        advice = "name one in the cluster profile once the site has told you which you may use"
        return CheckResult.warn("partitions", "none visible", advice=advice)
    more = len(texts) - SHOWN_PARTITIONS
    shown = texts[:SHOWN_PARTITIONS] + ([f"and {more} more (sinfo)"] if more > 0 else [])
    return CheckResult.ok("partitions", "; ".join(shown))


def accounting(slurm: Slurm) -> CheckResult:
    """Return whether sacct responds.

    Without it an ended job is known for MinJobAge only, and then only from its own files.
    """
    try:
        slurm.sacct(["autotune"], since=time.time())
    except AccountingDisabled:
        advice = "Slurm forgets a job some minutes after its end: let the service run while "
        return CheckResult.warn("accounting", "off", advice=advice + "trials do")
    except SlurmError as error:
        advice = "results do not depend on it, but why a job was ended may not be known"
        return CheckResult.warn("accounting", str(error), advice=advice)
    return CheckResult.ok("accounting", "on; sacct knows ended jobs")


def trial_folder(slurm: Slurm, settings: Settings) -> CheckResult:
    """Return whether nodes see the data folder, which trials' jobs read and write."""
    name, folder = "folder for nodes", settings.data_dir
    if is_shared(folder):
        return CheckResult.ok(name, f"{folder} is on a shared file system")
    hosts = _output_of(slurm, "sinfo", "--noheader", "--format=%n").split()
    if set(hosts) == {socket.gethostname().partition(".")[0]}:
        return CheckResult.ok(name, "every node is on this machine")
    advice = "put it where nodes see it as well (AUTOTUNE_DATA_DIR, --data-dir)"
    return CheckResult.warn(name, f"{folder}: on this machine", advice=advice)


def allocation() -> list[CheckResult]:
    """Return the job that this process runs in, if any."""
    job = os.environ.get("SLURM_JOB_ID")
    if not job:
        return []
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "?")
    inside = f"inside job {job}, nodes: {nodes}; `--mode pilot` runs trials as its steps"
    return [CheckResult.ok("allocation", inside)]


def _output_of(slurm: Slurm, *words: str) -> str:
    """Return the output of a command; empty if it failed or is missing."""
    if shutil.which(words[0]) is None:
        return ""
    _, output, _ = run_within(words, limit_s=LIMIT_S, environment=slurm.environment())
    return output.strip()


TIME_LIMIT_S = 1200.0
"""Default time limit of a campaign's trials."""


def check_profile(profile: ClusterProfile, *, nodes: int, machine: Machine) -> list[CheckResult]:
    """Return one result per problem that would prevent trials from running; a single one if there
    is none."""
    name = f"profile {profile.name}"
    try:
        problems = check(profile, nodes=nodes, time_limit_s=TIME_LIMIT_S, machine=machine)
    except SlurmError as error:
        advice = "try again when Slurm answers"
        return [CheckResult.fail(name, str(error), advice=advice)]
    if not problems:
        possible = f"trials on up to {plural(nodes, 'node')} of {machine.name} can be submitted"
        return [CheckResult.ok(name, possible)]
    return [
        CheckResult.fail(
            f"{profile.name}: {problem.field}",
            ("" if problem.value in (None, "") else f"{problem.value!r}: ") + problem.reason,
            advice=f"valid: {problem.valid}" if problem.valid else "change it in the profile",
        )
        for problem in problems
    ]
