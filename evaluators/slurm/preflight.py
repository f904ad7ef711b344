"""What would prevent every trial from running: found before anything is queued (`check`), and by a
short job on one node that reports what a trial would find there (`probe`)."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from evaluators import time_limit
from evaluators.attempt import ENDED
from evaluators.cluster.profile import ClusterProfile
from evaluators.cluster.shell import (
    container_words,
    environment_lines,
    sbatch_options,
    srun_words,
)
from evaluators.frameworks.megatron_deepspeed.checkout import (
    check_files,
    check_interpreter,
    packages_of,
)
from evaluators.program import Launcher
from evaluators.program.interpreter import import_path, python
from evaluators.slurm.batch_script import FOLDER_UNSEEN, job_head
from evaluators.slurm.commands import (
    QueueFull,
    Slurm,
    SlurmError,
    SlurmJob,
    SlurmNode,
    SlurmRefused,
    SlurmUnavailable,
    why_pending,
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
    """The largest job that a campaign submits: that of a trial, or one that holds nodes for trials.

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
        reason = "there is no sbatch on the PATH of this machine: Slurm's commands are needed here"
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
    packages = packages_of(interpreter, ["torch"])
    if isinstance(packages, str) or packages.missing:
        fault = packages if isinstance(packages, str) else "it has no torch"
        reason = f"{fault}, and the trainer is to run with it"
        yield InvalidInput("python", interpreter, reason, valid="a Python with torch and DeepSpeed")


MINUTES = 10
"""The job's time limit: the first import of torch from a shared file system takes some."""
SETTLE_S = 10.0
"""Maximum wait for a job that Slurm no longer lists, or for a file that it left."""
PAUSE_S = 1.0

_MARK = "[autotune probe] "
_NODE = f"""printf '{_MARK}{{"node": "%s"}}\\n' "${{SLURMD_NODENAME:-$(uname -n | cut -d. -f1)}}"
"""
_RANK = f"""
import json, os, re, shutil, subprocess, sys, tempfile
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

def helpers_error(folder):
    # Megatron compiles them when it first trains; here in a copy, since the checkout is the user's.
    suffix = EXTENSION_SUFFIXES[0]
    built = lambda place: any(name.endswith(suffix) for name in os.listdir(place))
    if not os.path.exists(os.path.join(folder, "Makefile")) or built(folder):
        return ""
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    with tempfile.TemporaryDirectory() as copy:
        for name in os.listdir(folder):
            if name == "Makefile" or name.endswith(".cpp"):
                shutil.copy(os.path.join(folder, name), copy)
        try:
            made = subprocess.run(
                ["make", "-C", copy], env=dict(os.environ, PATH=path), stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
            )
        except OSError as error:
            return "make: " + str(error.strerror)
        if made.returncode:
            lines = re.sub(chr(27) + "[[][0-9;]*[mK]", "", made.stdout).splitlines()
            errors = [line for line in lines if re.search("error|No module|not found", line)]
            return (errors or lines or ["make failed"])[0]
        if not built(copy):
            return "none is made for this interpreter (" + suffix + "): python3-config is another's"
    return ""

report = dict(
    rank=int(os.environ["SLURM_PROCID"]),
    python=sys.version.split()[0],
    executable=sys.executable,
    sees_folder=os.path.exists(sys.argv[1]),
    trainer=find_spec("evaluators") is not None,
    power=next(filter(shutil.which, ("nvidia-smi", "rocm-smi")), ""),
)
try:
    report["deepspeed"] = version("deepspeed")
except PackageNotFoundError:
    report["deepspeed"] = ""
try:
    import torch
    report["torch"] = torch.__version__
    report["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
except Exception as error:
    report["torch_error"] = type(error).__name__ + ": " + str(error)
if checkout := sys.argv[2]:
    sys.path.insert(0, checkout)  # as if a script in that folder were run
    try:
        import megatron.training
    except Exception as error:
        report["megatron_error"] = type(error).__name__ + ": " + str(error)
    if report["rank"] == 0:
        report["helpers_error"] = helpers_error(os.path.join(checkout, "megatron", "data"))
sys.stdout.write("{_MARK}" + json.dumps(report) + chr(10))
"""


@dataclass(frozen=True, kw_only=True)
class TaskReport:
    """Observations of one task, in the interpreter that trials train with.

    Attributes:
        sees_folder: whether the trials' files are visible, inside a container too.
        trainer: whether the bundled trainer can be imported.
        power: the tool that reads the GPUs' power; empty if there is none.
        deepspeed, torch: versions; empty if missing.
        torch_error: why torch cannot be imported; empty if it can.
        gpus: names of those that torch sees.
        megatron_error: why the profile's checkout of Megatron-DeepSpeed cannot be imported; empty
            if it can, or if trials do not train with it.
        helpers_error: why the checkout's C++ helpers do not compile; empty if they do, or are
            compiled already. Only the first rank tries.
    """

    rank: int
    python: str
    executable: str
    sees_folder: bool
    trainer: bool
    power: str
    deepspeed: str
    torch: str = ""
    torch_error: str = ""
    gpus: tuple[str, ...] = ()
    megatron_error: str = ""
    helpers_error: str = ""


_TASK_REPORT = TypeAdapter(TaskReport)


@dataclass(frozen=True, kw_only=True)
class ProbeReport:
    """Results of the probe job.

    Attributes:
        node: that it ran on; empty if it left nothing: the nodes do not see the folder, or the job
            did not run.
        ranks: in rank order, one per GPU; fewer if tasks did not start.
        last_lines: the last other lines of its log.
        gave_up: why the job was no longer waited for; empty if it ended.
    """

    node: str = ""
    ranks: tuple[TaskReport, ...] = ()
    last_lines: tuple[str, ...] = ()
    gave_up: str = ""


def probe(
    profile: ClusterProfile,
    *,
    gpus_per_node: int,
    folder: Path,
    wait_s: float,
    tell: Callable[[str], None],
    settle_s: float = SETTLE_S,
) -> ProbeReport:
    """Run the job, with its files below `folder` while it lasts.

    Args:
        wait_s: maximum wait for nodes, after which the job is cancelled.
        tell: called with a sentence whenever the job's state changes.
        settle_s: how long to wait for a job that Slurm no longer knows and that left no file.

    Raises:
        SlurmError: sbatch refused it (`SlurmRefused`), or does not answer.
        OSError: `folder` cannot be written.
        ValueError: something in the profile cannot be written as a `#SBATCH` line.
    """
    name = f"autotune-probe-{secrets.token_hex(4)}"
    slurm = Slurm.of(profile)
    place = folder / name
    place.mkdir(parents=True)
    try:
        script = place / "job.sh"
        script.write_text(script_of(profile, name=name, gpus_per_node=gpus_per_node, folder=place))
        with _cancelled_at_last(slurm, name):
            slurm.sbatch(script)
            watch = _Watch(slurm=slurm, name=name, wait_s=wait_s, settle_s=settle_s, tell=tell)
            gave_up = watch.until_ended(place)
        return report_in(place / "probe.log", gave_up=gave_up)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def script_of(profile: ClusterProfile, *, name: str, gpus_per_node: int, folder: Path) -> str:
    """Return a job like a trial's: its header, its environment, and a task for each GPU."""
    head = job_head(profile, name=name, nodes=1, gpus_per_node=gpus_per_node, minutes=MINUTES)
    launcher = Launcher(
        srun=(
            *("srun", "--nodes=1", f"--ntasks={gpus_per_node}"),
            *srun_words(profile, gpus_per_node=gpus_per_node),
        ),
        container=container_words(profile),
    )
    wanted = profile.megatron if profile.program == "megatron-deepspeed" else None
    checkout = wanted.path if wanted else ""
    words = (python(profile), "-c", _RANK, str(folder / "job.sh"), checkout)
    return "\n".join(
        [
            head,
            f"cd -- {shlex.quote(str(folder))} || exit {FOLDER_UNSEEN}",
            "exec </dev/null >>probe.log 2>&1",
            f"trap ': >{ENDED}' EXIT",
            _NODE,
            *environment_lines(profile),
            *import_path(profile),
            launcher.command(*map(shlex.quote, words)),
            "",
        ]
    )


def report_in(log: Path, *, gave_up: str = "") -> ProbeReport:
    """Parse the job's log; empty without a log."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ProbeReport(gave_up=gave_up)
    reports: list[dict[str, Any]] = [
        json.loads(line.removeprefix(_MARK)) for line in lines if line.startswith(_MARK)
    ]
    ranks = [_TASK_REPORT.validate_python(report) for report in reports if "rank" in report]
    return ProbeReport(
        node=next((str(report["node"]) for report in reports if "node" in report), ""),
        ranks=tuple(sorted(ranks, key=lambda rank: rank.rank)),
        last_lines=tuple(line for line in lines if line.strip() and not line.startswith(_MARK))[
            -3:
        ],
        gave_up=gave_up,
    )


@contextmanager
def _cancelled_at_last(slurm: Slurm, name: str) -> Iterator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(SlurmError):
            if job := _job(slurm, name):
                slurm.scancel([job.id])


def _job(slurm: Slurm, name: str) -> SlurmJob | None:
    return next((job for job in slurm.squeue() if job.name == name and not job.finished), None)


@dataclass(kw_only=True)
class _Watch:
    """Follows the job in the queue, and reports changes of its state."""

    slurm: Slurm
    name: str
    wait_s: float
    settle_s: float
    tell: Callable[[str], None]
    seen_at: float = field(default_factory=time.monotonic)
    waits_since: float = field(default_factory=time.monotonic)

    def until_ended(self, place: Path) -> str:
        """Return why the wait was given up; empty if the job ended, or Slurm does not list it."""
        last_progress = ""
        # A listing, since on NFS a lookup of a missing file may be cached.
        while ENDED not in os.listdir(place):
            time.sleep(PAUSE_S)
            progress = self._progress()
            if progress and progress != last_progress:
                last_progress = progress
                self.tell(progress)
            now = time.monotonic()
            if now - self.seen_at > self.settle_s:
                return ""
            if now - self.waits_since > self.wait_s:
                return f"no node within {self.wait_s:.0f} s: {last_progress}"
        return ""

    def _progress(self) -> str:
        now = time.monotonic()
        try:
            job = _job(self.slurm, self.name)
        except SlurmUnavailable as error:
            self.seen_at = now
            return f"Slurm does not answer: {error}"
        if job is None:
            return ""
        self.seen_at = now
        if job.waits:
            return f"job {job.id} waits: {why_pending(job)}"
        self.waits_since = now
        return f"job {job.id} runs on {job.nodes}"
