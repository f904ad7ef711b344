"""What would keep every trial from running, found before anything is queued."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping

from evaluators import time_limit
from evaluators.cluster.profile import ClusterProfile
from evaluators.frameworks.megatron_deepspeed.checkout import check_files, check_interpreter
from evaluators.program.interpreter import python
from evaluators.slurm.commands import Slurm, SlurmError
from search_spaces.errors import InvalidInput, closest
from search_spaces.machine import Machine

TIME_LIMIT_S = 60.0
"""How long an interpreter may look around: on a parallel file system it starts slowly."""

# Nothing is imported: torch would take seconds.
_LOOK = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"

_Partitions = Mapping[str, Mapping[str, str]]


def check(
    profile: ClusterProfile, *, nodes: int, time_limit_s: float, machine: Machine
) -> list[InvalidInput]:
    """All that can be known of here; empty where nothing stands in the way.

    Args:
        nodes: of the widest trial.
        time_limit_s: of a trial.
        machine: that the trials are for.

    Raises:
        SlurmUnavailable: Slurm does not answer, so that nothing is known.
    """
    program = list(_program(profile))
    if shutil.which("sbatch") is None:
        reason = "there is no sbatch on the PATH of this machine: Slurm's commands are needed here"
        return [*program, InvalidInput("evaluator", "slurm", reason, valid="a login node")]
    slurm = Slurm.of(profile)
    return [
        *_machine(profile, machine),
        *_partition(profile, slurm.partitions(), nodes=nodes, time_limit_s=time_limit_s),
        *_account(profile, slurm),
        *program,
    ]


def _machine(profile: ClusterProfile, machine: Machine) -> Iterator[InvalidInput]:
    if profile.machine and profile.machine != machine.name:
        reason = f"the profile {profile.name} is for {profile.machine}"
        yield InvalidInput("machine", machine.name, reason, valid=profile.machine)


def _partition(
    profile: ClusterProfile, known: _Partitions, *, nodes: int, time_limit_s: float
) -> Iterator[InvalidInput]:
    """A job may name several partitions: it runs where it can, so one that fits will do."""
    names = _partition_names(profile, known)
    unknown = [name for name in names if name not in known]
    for name in unknown:
        near = closest(name, known) or sorted(known)
        reason = "this cluster has no such partition"
        yield InvalidInput("slurm.partition", name, reason, valid=", ".join(near))
    named = {name: known[name] for name in names if name in known}
    if unknown or not named:
        return
    words = f"the partition {' or '.join(named)}"
    most = max(
        _number(fields.get("MaxNodes"), fields.get("TotalNodes")) for fields in named.values()
    )
    if nodes > most:
        yield InvalidInput("nodes", nodes, f"{words} has {most:.0f}", valid=f"1 to {most:.0f}")
    limit_s = 60 * time_limit.slurm_minutes(time_limit_s)
    longest = max(_seconds(fields.get("MaxTime", "")) for fields in named.values())
    if limit_s > longest:
        spare = longest - (limit_s - time_limit_s)
        reason = f"{words} ends jobs after {longest / 60:g} min, start-up and margin included"
        valid = f"up to {spare:.0f} s" if spare > 0 else "another partition"
        yield InvalidInput("time_limit_s", time_limit_s, reason, valid=valid)


def _partition_names(profile: ClusterProfile, known: _Partitions) -> list[str]:
    """Return those of the profile, of the user's environment, or the cluster's own."""
    named = profile.slurm.partition or os.environ.get("SBATCH_PARTITION", "")
    default = [name for name, fields in known.items() if fields.get("Default") == "YES"]
    return [name.strip() for name in named.split(",") if name.strip()] or default


def _number(limit: str | None, total: str | None) -> float:
    """The smaller of the two, as far as they are numbers."""
    numbers = [float(text) for text in (limit, total) if text and text.isdigit()]
    return min(numbers, default=float("inf"))


def _seconds(text: str) -> float:
    """Return the seconds of `1-00:00:00` or `02:00:00`; anything else is no limit."""
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts) or (days and not days.isdigit()):
        return float("inf")
    seconds = 0
    for part in parts:
        seconds = 60 * seconds + int(part)
    return seconds + 86_400 * int(days or 0)


def _account(profile: ClusterProfile, slurm: Slurm) -> Iterator[InvalidInput]:
    account = profile.slurm.account
    if not account:
        return
    try:
        known = slurm.accounts()
    except SlurmError:
        return  # sbatch itself will tell
    if known and account.casefold() not in {name.casefold() for name in known}:
        near = closest(account, known) or sorted(known)
        reason = "you have no such account on this cluster"
        yield InvalidInput("slurm.account", account, reason, valid=", ".join(near))


def _program(profile: ClusterProfile) -> Iterator[InvalidInput]:
    """What the trials train with, as far as this machine sees it."""
    environment = profile.environment
    theirs = profile.container or environment.modules or environment.virtual_environment
    if profile.program == "megatron-deepspeed":
        yield from _megatron(profile, ask=not theirs)
    elif not theirs:
        yield from _trainer(python(profile))


def _megatron(profile: ClusterProfile, *, ask: bool) -> Iterator[InvalidInput]:
    if profile.megatron is None:
        reason = "Megatron-DeepSpeed needs the path of its checkout"
        yield InvalidInput("megatron", None, reason, valid='path = "…" under [megatron]')
        return
    yield from check_files(profile.megatron)
    if ask:
        yield from check_interpreter(profile.megatron, python(profile))


def _trainer(interpreter: str) -> Iterator[InvalidInput]:
    reason = ""
    if shutil.which(interpreter) is None:
        reason = "there is no such interpreter"
    else:
        try:
            search = subprocess.run(
                [interpreter, "-c", _LOOK],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=TIME_LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            reason = f"it cannot be asked for its packages: {error}"
        else:
            reason = "it has no torch" if search.returncode else ""
    if reason:
        reason = f"{reason}, and the trainer is to run with it"
        yield InvalidInput("python", interpreter, reason, valid="a Python with torch and DeepSpeed")
