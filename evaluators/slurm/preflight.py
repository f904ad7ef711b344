"""Find problems that would prevent every trial from running, before anything is queued."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping

from evaluators import time_limit
from evaluators.cluster.profile import ClusterProfile
from evaluators.frameworks.megatron_deepspeed.checkout import (
    check_files,
    check_interpreter,
    packages_of,
)
from evaluators.program.interpreter import python
from evaluators.slurm.commands import Slurm, SlurmError
from search_spaces.errors import InvalidInput, closest
from search_spaces.machine import Machine

_Partitions = Mapping[str, Mapping[str, str]]


def check(
    profile: ClusterProfile, *, nodes: int, time_limit_s: float, machine: Machine
) -> list[InvalidInput]:
    """Return all problems that can be detected on this machine.

    Args:
        nodes: of the widest trial.
        time_limit_s: of a trial.
        machine: of the trials.

    Raises:
        SlurmUnavailable: Slurm does not answer, so nothing is known.
    """
    program = list(_check_program(profile))
    if shutil.which("sbatch") is None:
        reason = "there is no sbatch on the PATH of this machine: Slurm's commands are needed here"
        return [*program, InvalidInput("evaluator", "slurm", reason, valid="a login node")]
    invalid: list[InvalidInput] = []
    if profile.machine and profile.machine != machine.name:
        reason = f"the profile {profile.name} is for {profile.machine}"
        invalid.append(InvalidInput("machine", machine.name, reason, valid=profile.machine))
    slurm = Slurm.of(profile)
    partitions = slurm.partitions()
    return [
        *invalid,
        *_check_partition(profile, partitions, nodes=nodes, time_limit_s=time_limit_s),
        *_check_account(profile, slurm),
        *program,
    ]


def _check_partition(
    profile: ClusterProfile, known: _Partitions, *, nodes: int, time_limit_s: float
) -> Iterator[InvalidInput]:
    """Yield why a job's partitions would refuse it.

    If a job names several partitions, one that accepts it is enough. The profile's partitions take
    precedence over those of the user's environment, and these over the cluster's default.

    Args:
        known: partitions of the cluster by name.
    """
    named_by_user = profile.slurm.partition or os.environ.get("SBATCH_PARTITION", "")
    names = [name.strip() for name in named_by_user.split(",") if name.strip()]
    if not names:
        names = [name for name, fields in known.items() if fields.get("Default") == "YES"]
    unknown = [name for name in names if name not in known]
    for name in unknown:
        near = closest(name, known) or sorted(known)
        reason = "this cluster has no such partition"
        yield InvalidInput("slurm.partition", name, reason, valid=", ".join(near))
    named = {name: known[name] for name in names if name in known}
    if unknown or not named:
        return
    words = f"the partition {' or '.join(named)}"
    most = max(_most_nodes(fields) for fields in named.values())
    if nodes > most:
        yield InvalidInput("nodes", nodes, f"{words} has {most:.0f}", valid=f"1 to {most:.0f}")
    limit_s = 60 * time_limit.slurm_minutes(time_limit_s)
    longest = max(_time_limit_s(fields.get("MaxTime", "")) for fields in named.values())
    if limit_s > longest:
        spare = longest - (limit_s - time_limit_s)
        reason = f"{words} ends jobs after {longest / 60:g} min, start-up and margin included"
        valid = f"up to {spare:.0f} s" if spare > 0 else "another partition"
        yield InvalidInput("time_limit_s", time_limit_s, reason, valid=valid)


def _most_nodes(partition: Mapping[str, str]) -> float:
    """Return the maximum number of nodes of a job; a limit that is not a number is ignored."""
    limits = (partition.get("MaxNodes", ""), partition.get("TotalNodes", ""))
    return min((float(text) for text in limits if text.isdigit()), default=float("inf"))


def _time_limit_s(text: str) -> float:
    """Return the seconds of `1-00:00:00` or `02:00:00`; anything else is no limit."""
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts) or (days and not days.isdigit()):
        return float("inf")
    seconds = 0
    for part in parts:
        seconds = 60 * seconds + int(part)
    return seconds + 86_400 * int(days or 0)


def _check_account(profile: ClusterProfile, slurm: Slurm) -> Iterator[InvalidInput]:
    account = profile.slurm.account
    if not account:
        return
    try:
        known = slurm.accounts()
    except SlurmError:
        return  # sbatch will report it
    if known and account.casefold() not in {name.casefold() for name in known}:
        near = closest(account, known) or sorted(known)
        reason = "you have no such account on this cluster"
        yield InvalidInput("slurm.account", account, reason, valid=", ".join(near))


def _check_program(profile: ClusterProfile) -> Iterator[InvalidInput]:
    """Yield problems of the trials' trainer that this machine can detect.

    An interpreter from modules, a container or a virtual environment cannot be checked here.
    """
    environment = profile.environment
    theirs = profile.container or environment.modules or environment.virtual_environment
    if profile.program != "megatron-deepspeed":
        if not theirs:
            yield from _check_torch(python(profile))
        return
    if profile.megatron is None:
        reason = "Megatron-DeepSpeed needs the path of its checkout"
        yield InvalidInput("megatron", None, reason, valid='path = "…" under [megatron]')
        return
    yield from check_files(profile.megatron)
    if not theirs:
        yield from check_interpreter(profile.megatron, python(profile))


def _check_torch(interpreter: str) -> Iterator[InvalidInput]:
    """Yield why the bundled trainer cannot run with this interpreter, which is started once."""
    packages = packages_of(interpreter, ["torch"])
    if isinstance(packages, str) or packages.missing:
        fault = packages if isinstance(packages, str) else "it has no torch"
        reason = f"{fault}, and the trainer is to run with it"
        yield InvalidInput("python", interpreter, reason, valid="a Python with torch and DeepSpeed")
