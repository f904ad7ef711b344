"""What would prevent every trial from running: found before anything is queued (`check`), and by a
short job on one node that reports what a trial would find there (`probe`)."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from evaluators import time_limit
from evaluators.attempt import ENDED
from evaluators.cluster.profile import ClusterProfile
from evaluators.cluster.shell import container_words, environment_lines, srun_words
from evaluators.frameworks.megatron_deepspeed.checkout import (
    check_files,
    check_interpreter,
    packages_of,
)
from evaluators.program import Launcher
from evaluators.program.interpreter import import_path, python
from evaluators.slurm.batch_script import FOLDER_UNSEEN, job_head
from evaluators.slurm.commands import Slurm, SlurmError, SlurmJob, SlurmUnavailable, why_pending
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
    """Cancel the job of this name on exit, whatever happened."""
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
        """Return the job's state as a sentence; empty if it is not in the queue."""
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
