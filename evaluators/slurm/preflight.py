"""Preflight checks of a request, before anything is queued."""

from __future__ import annotations

import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluators import time_limit
from evaluators.adapter.adapter import Adapter
from evaluators.cluster.profile import ClusterProfile
from evaluators.cluster.shell import (
    sbatch_options,
)
from evaluators.program.interpreter import packages_fault, python
from evaluators.slurm.batch_script import job_head
from evaluators.slurm.commands import (
    QueueFull,
    Slurm,
    SlurmError,
    SlurmNode,
    SlurmRefused,
)
from search_spaces.errors import InvalidInput, closest
from search_spaces.machine import Machine

_Partitions = Mapping[str, Mapping[str, str]]

_CLOSED = {
    "DOWN": "is down: it takes jobs and starts none",
    "INACTIVE": "is inactive: it neither takes jobs nor starts any",
    "DRAIN": "is draining: it takes no further jobs",
}
ALL_MEMORY = 0.9
"""Share of a node's memory that is as good as all of it."""
_MIG_SLICE = re.compile(r"gpu:[\w.]*\d+g\.\d+gb")
_TOO_LARGE_FOR_GROUP = re.compile(r"(?:QOS|Assoc)Grp(?!Submit)")
_LACKS_NODES = re.compile(r"Requested node configuration is not available$")


@dataclass(frozen=True, kw_only=True)
class JobShape:
    """The largest job that a campaign submits: a trial, or a job that holds nodes for trials.

    Attributes:
        time_limit_s: of the trial, or of the holding job.
        holds: whether it holds nodes (pilot mode).
    """

    nodes: int
    time_limit_s: float
    holds: bool = False

    @property
    def minutes(self) -> int:
        if self.holds:
            return math.ceil(self.time_limit_s / 60)
        return time_limit.slurm_minutes(self.time_limit_s)

    def too_long(self, words: str, longest_s: float) -> InvalidInput:
        """Return the error that partitions end jobs earlier, in the unit of the field."""
        reason = f"{words} ends jobs after {longest_s / 60:g} min"
        spare_s = longest_s - (60 * self.minutes - self.time_limit_s)
        if self.holds:
            hours, valid = self.time_limit_s / 3600, f"up to {longest_s / 3600:.4g} h"
            return InvalidInput("pilot.time_limit_h", hours, reason, valid=valid)
        valid = f"up to {spare_s:.0f} s" if spare_s > 0 else "another partition"
        reason += ", start-up and margin included"
        return InvalidInput("time_limit_s", self.time_limit_s, reason, valid=valid)


def check(profile: ClusterProfile, *, job: JobShape | None, machine: Machine) -> list[InvalidInput]:
    """Return all problems that can be detected on this machine.

    Args:
        job: the largest one; None if trials run in an allocation that exists.
        machine: of the trials.

    Raises:
        SlurmUnavailable: Slurm does not answer, so nothing is known.
    """
    program = list(_check_program(profile))
    if shutil.which("sbatch") is None:
        reason = "sbatch is not on the PATH of this machine"
        return [*program, InvalidInput("evaluator", "slurm", reason, valid="a login node")]
    problems: list[InvalidInput] = []
    if profile.machine and profile.machine != machine.name:
        reason = f"the profile {profile.name} is for {profile.machine}"
        problems.append(InvalidInput("machine", machine.name, reason, valid=profile.machine))
    if job is not None:
        problems += _check_job(profile, job, machine)
    return [*problems, *program]


def _check_job(profile: ClusterProfile, job: JobShape, machine: Machine) -> Iterator[InvalidInput]:
    slurm = Slurm.of(profile)
    known = slurm.partitions()
    names = partition_names(profile, known)
    unknown = [name for name in names if name not in known]
    for name in unknown:
        near = closest(name, known) or sorted(known)
        reason = "this cluster has no such partition"
        yield InvalidInput("slurm.partition", name, reason, valid=", ".join(near))
    nodes = _nodes_in(slurm, names)
    problems = list(_check_account(profile, slurm))
    if not unknown and names:
        named = {name: known[name] for name in names}
        problems += _check_partitions(profile, named, job=job, known=known)
        problems += _check_gpus(profile, names, nodes)
    yield from problems
    if not (unknown or problems):
        yield from _ask(profile, slurm, job, machine, nodes)


def partition_names(profile: ClusterProfile, known: _Partitions) -> list[str]:
    named_by_user = profile.slurm.partition or os.environ.get("SBATCH_PARTITION", "")
    names = [name.strip() for name in named_by_user.split(",") if name.strip()]
    return names or [name for name, fields in known.items() if fields.get("Default") == "YES"]


def _nodes_in(slurm: Slurm, partitions: Sequence[str]) -> list[SlurmNode]:
    try:
        known = slurm.known_nodes()
    except SlurmRefused:
        return []
    return [node for node in known if node.partition in partitions]


def _check_partitions(
    profile: ClusterProfile, named: _Partitions, *, job: JobShape, known: _Partitions
) -> Iterator[InvalidInput]:
    words = f"the partition {' or '.join(named)}"
    states = {fields.get("State", "UP") for fields in named.values()}
    if "UP" not in states:
        state = min(states)
        reason = f"it {_CLOSED.get(state, f'is {state.lower()}')}"
        up = ", ".join(name for name, fields in known.items() if fields.get("State") == "UP")
        yield InvalidInput("slurm.partition", ", ".join(named), reason, valid=up)
    account = profile.slurm.account
    if account and not any(_admits(fields, account) for fields in named.values()):
        allowed = {fields.get("AllowAccounts", "ALL") for fields in named.values()} - {"ALL"}
        reason = f"{words} does not admit this account"
        yield InvalidInput("slurm.account", account, reason, valid=", ".join(sorted(allowed)))
    most = max(_most_nodes(fields) for fields in named.values())
    if job.nodes > most:
        yield InvalidInput("nodes", job.nodes, f"{words} has {most:.0f}", valid=f"1 to {most:.0f}")
    longest_s = max(_time_limit_s(fields.get("MaxTime", "")) for fields in named.values())
    if 60 * job.minutes > longest_s:
        yield job.too_long(words, longest_s)


def _admits(partition: Mapping[str, str], account: str) -> bool:
    allowed = partition.get("AllowAccounts", "ALL")
    denied = partition.get("DenyAccounts", "").casefold().split(",")
    listed = allowed == "ALL" or account.casefold() in allowed.casefold().split(",")
    return listed and account.casefold() not in denied


def _check_gpus(
    profile: ClusterProfile, partitions: Sequence[str], nodes: Sequence[SlurmNode]
) -> Iterator[InvalidInput]:
    if profile.slurm.gpu_request == "none" or not nodes:
        return
    name = ", ".join(partitions)
    of_gpus = sorted({node.gres for node in nodes if "gpu" in node.gres})
    if not of_gpus:
        reason = "no node of it has gres/gpu, and trials request GPUs"
        yield InvalidInput("slurm.partition", name, reason, valid="a partition with GPUs")
    elif all(_MIG_SLICE.search(gres) for gres in of_gpus):
        reason = f"its GPUs are MIG slices ({of_gpus[0]}), and a rank trains on a whole GPU"
        yield InvalidInput("slurm.partition", name, reason, valid="a partition with whole GPUs")


def _ask(
    profile: ClusterProfile,
    slurm: Slurm,
    job: JobShape,
    machine: Machine,
    nodes: Sequence[SlurmNode],
) -> Iterator[InvalidInput]:
    """Yield why sbatch refuses a job with this header, which is not submitted.

    A full queue, and nodes that are drained for the moment, are waited for: they are no problem.
    """
    try:
        head = job_head(
            profile,
            name="autotune-test-only",
            nodes=job.nodes,
            gpus_per_node=machine.gpus_per_node,
            minutes=job.minutes,
        )
    except ValueError as error:
        yield InvalidInput("slurm.directives", None, str(error))
        return
    with tempfile.TemporaryDirectory(prefix="autotune-") as folder:
        script = Path(folder) / "job.sh"
        script.write_text(head)
        try:
            slurm.test_only(script)
        except QueueFull as error:
            if _TOO_LARGE_FOR_GROUP.search(str(error)):  # it is judged by itself
                yield _refusal(job, error)
        except SlurmRefused as error:
            usable = sum(node.usable for node in nodes)
            if not (_LACKS_NODES.search(str(error)) and usable < job.nodes <= len(nodes)):
                yield _refusal(job, error)


def _refusal(job: JobShape, error: SlurmRefused) -> InvalidInput:
    size = f"{job.nodes} node{'s' if job.nodes > 1 else ''}, {job.minutes} min"
    return InvalidInput("slurm", size, f"sbatch --test-only refuses such a job: {error}")


def lack_of_memory(profile: ClusterProfile, *, machine: Machine) -> str:
    """Return that a job gets only a part of its nodes' memory, by its own `--mem` or the site's
    default; empty if it gets all, or as much as the profile requests for each CPU or GPU.

    Raises:
        SlurmError: Slurm does not answer, or refuses to.
    """
    options = sbatch_options(profile, nodes=1, gpus_per_node=machine.gpus_per_node)
    if any(option.startswith(("--mem-per-cpu", "--mem-per-gpu")) for option in options):
        return ""
    slurm = Slurm.of(profile)
    known = slurm.partitions()
    names = [name for name in partition_names(profile, known) if name in known]
    nodes = _nodes_in(slurm, names)
    memory_mb = min((node.memory_mb for node in nodes), default=0)
    wanted = [option.removeprefix("--mem=") for option in options if option.startswith("--mem=")]
    if wanted:
        granted_mb, source = _megabytes(wanted[-1]), f"--mem={wanted[-1]} of its profile"
    else:
        cpus = machine.gpus_per_node * (profile.tasks.cpus_per_task or 1)
        granted_mb, source = _default_memory(slurm.settings(), *map(known.get, names), cpus=cpus)
    if not granted_mb or granted_mb >= ALL_MEMORY * memory_mb:
        return ""
    return f"a job gets {granted_mb / 1024:.3g} of a node's {memory_mb / 1024:.3g} GiB ({source})"


def _default_memory(*sources: Mapping[str, str] | None, cpus: int) -> tuple[float, str]:
    """Return the megabytes on each node of a job that requests none, and the setting that says so;
    0 without a limit. Later sources take precedence."""
    granted_mb, setting = 0.0, ""
    for fields in filter(None, sources):
        for name, count in (("DefMemPerNode", 1), ("DefMemPerCPU", cpus)):
            if fields.get(name, "").isdigit():
                granted_mb, setting = float(fields[name]) * count, f"{name}={fields[name]}"
    return granted_mb, setting


def _megabytes(text: str) -> float:
    size = re.fullmatch(r"(\d+)([KMGT]?)B?", text.strip().upper())
    return int(size[1]) * 1024.0 ** ("KMGT".index(size[2] or "M") - 1) if size else 0.0


def _most_nodes(partition: Mapping[str, str]) -> float:
    limits = (partition.get("MaxNodes", ""), partition.get("TotalNodes", ""))
    return min((float(text) for text in limits if text.isdigit()), default=float("inf"))


def _time_limit_s(text: str) -> float:
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
    environment, adapter = profile.environment, profile.adapter
    if adapter and profile.trainer and not profile.container:
        yield from _check_folder(adapter)
    if profile.container or environment.modules or environment.virtual_environment:
        return
    needs = ("torch", *(adapter.needs if adapter else ()))
    if fault := packages_fault(python(profile), needs):
        reason = f"{fault}, which the trainer needs"
        valid = f"a Python with {', '.join(needs) if adapter else 'torch and DeepSpeed'}"
        yield InvalidInput("python", python(profile), reason, valid=valid)


def _check_folder(adapter: Adapter) -> Iterator[InvalidInput]:
    folder = Path(adapter.folder)
    scripts = [word for word in adapter.command if word.endswith(".py") and "{" not in word]
    if missing := [script for script in scripts if not (folder / script).is_file()]:
        reason = f"it has no {missing[0]}" if folder.is_dir() else "there is no such folder here"
        valid = f"a checkout of the trainer of {adapter.name}"
        yield InvalidInput("trainer.folder", adapter.folder, reason, valid=valid)
