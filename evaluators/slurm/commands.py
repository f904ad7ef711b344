"""Slurm's client commands, each with a time limit, and the jobs that they print."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from evaluators.cluster.profile import ClusterProfile

SQUEUE_FORMAT = "%i|%T|%V|%S|%e|%N|%r|%j"
SACCT_FORMAT = "JobIDRaw,State,Submit,Start,End,NodeList,ExitCode,JobName"
"""The name comes last in both, for a pipe in it would otherwise shift what follows."""

SINFO_FORMAT = "%N|%R|%T|%m|%G|%E"

WAITING = frozenset(
    {
        "PENDING",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESV_DEL_HOLD",
        "SPECIAL_EXIT",
        "SUSPENDED",
        "STOPPED",
    }
)
ACTIVE = frozenset(
    {"RUNNING", "CONFIGURING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "POWER_UP_NODE"}
)
FINISHED = frozenset(
    {
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "TIMEOUT",
        "DEADLINE",
        "OUT_OF_MEMORY",
        "NODE_FAIL",
        "BOOT_FAIL",
        "PREEMPTED",
        "REVOKED",
    }
)
_KNOWN = WAITING | ACTIVE | FINISHED
_UNSET = frozenset({"", "None", "(null)", "None assigned"})


@dataclass(frozen=True, kw_only=True)
class SlurmJob:
    """One job. Times are epoch seconds by the controller's clock; None: not yet.

    Attributes:
        state: Slurm's long name (`NODE_FAIL`).
        reason: why it is pending, in Slurm's word; empty if there is none.
        nodes: Slurm's expression (`n[01-04]`); empty until nodes are allocated.
        cancelled_by: id of the user who cancelled it; only from accounting.
        exit_code: of the batch script; only from accounting.
    """

    id: str
    name: str
    state: str
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    reason: str = ""
    nodes: str = ""
    cancelled_by: int | None = None
    exit_code: int | None = None

    @property
    def waits(self) -> bool:
        return self.state in WAITING

    @property
    def suspended(self) -> bool:
        return self.state in {"SUSPENDED", "STOPPED"}

    @property
    def finished(self) -> bool:
        return self.state in FINISHED

    @property
    def completing(self) -> bool:
        return self.finished or self.state == "COMPLETING"


def jobs_of_squeue(text: str) -> list[SlurmJob]:
    """Parse the output of `squeue --format=SQUEUE_FORMAT` with times in epoch seconds.

    Other lines (a cluster's heading, the second line of a name) are skipped.
    """
    return [replace(job, reason=_text(reason)) for job, _, reason in _jobs(text)]


def jobs_of_sacct(text: str) -> list[SlurmJob]:
    """Parse the output of `sacct -X --parsable2 --format=SACCT_FORMAT`.

    Other lines are skipped.
    """
    return [
        replace(
            job,
            cancelled_by=int(user_id) if user_id.isdigit() else None,
            exit_code=_exit_code(exit_code),
        )
        for job, user_id, exit_code in _jobs(text)
    ]


def _jobs(text: str) -> Iterator[tuple[SlurmJob, str, str]]:
    for line in text.splitlines():
        fields = line.split("|", 7)
        if len(fields) < 8:
            continue
        job_id, state, submitted, started, ended, nodes, other, name = fields
        word, _, user_id = state.partition(" by ")
        if word in _KNOWN:
            job = SlurmJob(
                id=job_id,
                name=name,
                state=word,
                submitted_at=_time(submitted),
                started_at=_time(started),
                ended_at=_time(ended),
                nodes=_text(nodes),
            )
            yield job, user_id, other


def _time(text: str) -> float | None:
    return float(text) if text.isdigit() else None


def _text(text: str) -> str:
    return "" if text in _UNSET else text


def _exit_code(text: str) -> int | None:
    code, _, signal = text.partition(":")
    if not (code.isdigit() and signal.isdigit()):
        return None
    return 128 + int(signal) if int(signal) else int(code)


@dataclass(frozen=True, kw_only=True)
class SlurmNode:
    """A node in one of its partitions.

    Attributes:
        state: Slurm's long name, lower case (`drained`), without the signs behind it.
        memory_mb: that Slurm may give to jobs.
        gres: generic resources (`gpu:h100:8(S:0-1)`); empty if there are none.
        reason: why it is down or drained; empty if it is not.
    """

    name: str
    partition: str
    state: str
    memory_mb: int
    gres: str = ""
    reason: str = ""

    @property
    def usable(self) -> bool:
        return not self.state.startswith(("down", "drain", "fail", "error", "unk", "inval", "fut"))


def nodes_of_sinfo(text: str) -> list[SlurmNode]:
    """Parse the output of `sinfo --Node --format=SINFO_FORMAT`; other lines are skipped."""
    nodes = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|", 5)]
        if len(fields) < 6:
            continue
        name, partition, state, memory, gres, reason = fields
        node = SlurmNode(
            name=name,
            partition=partition,
            state=state.rstrip("*~#!%$@^-+").lower(),
            memory_mb=int(memory) if memory.isdigit() else 0,
            gres=_text(gres),
            reason="" if reason == "none" else reason,
        )
        nodes.append(node)
    return nodes


# Why a job waits, in a sentence for the user.
_SENTENCES: Mapping[str, str] = {
    "": "not yet looked at by Slurm",
    "None": "not yet looked at by Slurm",
    "Resources": "waiting for free nodes",
    "Priority": "behind jobs of higher priority",
    "JobHeldUser": "held by the user",
    "JobHeldAdmin": "held by an administrator",
    "BeginTime": "not to begin yet",
    "Dependency": "waiting for another job",
    "DependencyNeverSatisfied": "waiting for another job that never succeeds",
    "Reservation": "waiting for its reservation to begin",
    "ReservationDeleted": "its reservation was deleted",
    "Licenses": "waiting for licences",
    "InvalidAccount": "the account is not valid",
    "InvalidQOS": "the QOS is not valid",
    "AccountNotAllowed": "the account may not use this partition",
    "QOSNotAllowed": "the QOS may not be used in this partition",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "PartitionNodeLimit": "more nodes than the partition allows",
    "PartitionTimeLimit": "a longer time limit than the partition allows",
    "PartitionConfig": "the partition cannot run such a job",
    "BadConstraints": "no nodes meet its constraints",
    "ReqNodeNotAvail": "nodes that it needs are not available",
    "NodeDown": "a node that it needs is down",
    "FrontEndDown": "no front end is up",
    "JobArrayTaskLimit": "the limit on running tasks of its array is reached",
    "JobHoldMaxRequeue": "held, because it was requeued too often",
    "Prolog": "its nodes are being prepared",
    "Cleaning": "what is left of an earlier run is being removed",
    "launch_failed_requeued_held": "held, because it could not be launched",
}
# By what a reason starts with; the rest of it names the limit.
_FAMILIES: Mapping[str, str] = {
    "QOS": "a limit of its QOS is reached",
    "Assoc": "a limit of the account is reached",
    "MaxCpuPerAccount": "a limit of the account is reached",
    "MaxNodePerAccount": "a limit of the account is reached",
    "MaxJobsPerAccount": "a limit of the account is reached",
    "ReqNodeNotAvail": "nodes that it needs are not available",
    "Nodes_required": "nodes that it needs are down, drained or reserved",
}


def why_pending(job: SlurmJob) -> str:
    """Return why a job waits, as in `waiting for free nodes (Resources)`."""
    if job.suspended:
        return f"suspended ({job.state})"
    word = job.reason.split(",")[0].strip().replace(" ", "_")
    families = (text for start, text in _FAMILIES.items() if word.startswith(start))
    sentence = _SENTENCES.get(word) or next(families, "waiting")
    return f"{sentence} ({job.reason or job.state})"


COMMAND_LIMIT_S = 30.0

# How the last line ends if Slurm did not answer. A site's own refusal may use such words elsewhere.
_UNAVAILABLE = re.compile(
    r"(?:^|: )(?:Unable to contact slurm controller.*|Slurm backup controller in standby mode"
    r"|Controller is in standby mode.*|Communication (?:connection|shutdown) failure"
    r"|Socket timed out on send/recv operation|Zero Bytes were transmitted or received"
    r"|Received zero length message|Connection (?:refused|reset by peer|timed out)"
    r"|Transport endpoint is not connected|Broken pipe|Network is unreachable|No route to host"
    r"|Resource temporarily unavailable|Slurm temporarily unable to accept job.*"
    r"|Protocol authentication error|Invalid authentication credential"
    r"|Failed to connect to authentication agent|Could not establish a configuration source"
    r"|Problem talking to the database|Unable to connect to database)[.!]?$",
    re.IGNORECASE,
)
# A limit on submissions or on a group. Slurm names it on a line of its own, before the last one.
_LIMIT = re.compile(r"(?:QOS|Assoc)(?:Grp|MaxSubmit)\w+")
_BEYOND_LIMIT = re.compile(r"Job violates accounting/QOS policy")
_NO_RECORD = re.compile(r"Unable to create job record, try again$")  # MaxJobCount
_JOB_ID = re.compile(r"(\d+)(?:;\S+)?|Submitted batch job (\d+)(?: on cluster \S+)?")
_NO_ACCOUNTING = re.compile(r"accounting storage is disabled", re.IGNORECASE)
_NOISE = re.compile(r"^\s*(sbatch|squeue|sacct|scancel|sinfo|scontrol|sacctmgr): ?(error: )?")

# Variables of a surrounding job, and a user's defaults, which would change the jobs of trials.
_FOREIGN = re.compile(r"^(SLURM|SBATCH|SALLOC|SRUN|SQUEUE|SACCT|SCANCEL|SINFO|SCONTROL|PMI[X]?)_")
_OF_CLUSTER = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_CLUSTERS"})
_DEVICES = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "ZE_AFFINITY_MASK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
    }
)


class SlurmError(Exception):
    """A Slurm command failed."""


class SlurmUnavailable(SlurmError):
    """Slurm did not answer; whether the command took effect is unknown."""


class SlurmRefused(SlurmError):
    """Slurm answered with this error message."""


class QueueFull(SlurmRefused):
    """A limit on jobs is reached: the same job will be accepted later."""


class AccountingDisabled(SlurmError):
    """This cluster has no accounting."""


class Slurm:
    """The commands, for this process's user. Thread-safe.

    Every method raises `SlurmUnavailable` if there was no answer within the limit, and
    `SlurmRefused` if Slurm answered with an error.

    Attributes:
        calls: number of calls by command.
    """

    def __init__(
        self, *, limit_s: float = COMMAND_LIMIT_S, keep: Collection[str] = frozenset()
    ) -> None:
        self.calls: Counter[str] = Counter()
        self._limit_s = limit_s
        self._keep = _OF_CLUSTER | set(keep)

    @classmethod
    def of(cls, profile: ClusterProfile) -> Self:
        named = profile.slurm.named
        keep = [f"SBATCH_{name.upper()}" for name, value in named.items() if not value]
        return cls(limit_s=profile.polling.command_limit_s, keep=keep)

    def environment(self) -> Mapping[str, str]:
        """Return the environment without variables that would change our jobs; times are epoch
        seconds."""
        own = {
            name: value
            for name, value in os.environ.items()
            if name in self._keep or not (_FOREIGN.match(name) or name in _DEVICES)
        }
        return own | {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}

    def sbatch(self, script: Path, *options: str) -> str:
        """Submit a script and return the job's id.

        After `SlurmUnavailable` the job may exist.
        """
        text = self._run("sbatch", "--parsable", *options, str(script))
        for line in reversed(text.splitlines()):  # a site's wrapper may print more
            if printed := _JOB_ID.fullmatch(line.strip()):
                return printed[1] or printed[2]
        raise SlurmUnavailable(f"sbatch printed no job id: {_one_line(text)}")

    def test_only(self, script: Path) -> None:
        self._run("sbatch", "--test-only", str(script))

    def squeue(self) -> list[SlurmJob]:
        """Return every job of this user that the controller knows, recently ended ones included."""
        text = self._run(
            "squeue",
            "--states=all",
            f"--user={os.geteuid()}",
            "--noheader",
            f"--format={SQUEUE_FORMAT}",
        )
        return jobs_of_squeue(text)

    def steps(self, job_id: str) -> list[tuple[str, str]]:
        """Return (id, name) of each running step of this job; empty if the job has ended."""
        user = f"--user={os.geteuid()}"
        try:
            text = self._run(
                "squeue", "--steps", f"--jobs={job_id}", user, "--noheader", "--format=%i|%j"
            )
        except SlurmRefused:
            return []
        pairs = (line.strip().partition("|") for line in text.splitlines())
        return [(step, name) for step, _, name in pairs]

    def sacct(self, names: Iterable[str], *, since: float) -> list[SlurmJob]:
        """Return the jobs of these names that were submitted or ran since then (epoch seconds).

        Raises:
            AccountingDisabled: in addition to the errors of every method.
        """
        start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since))
        text = self._run(
            "sacct",
            "--allocations",
            "--duplicates",
            "--parsable2",
            "--noheader",
            f"--user={os.geteuid()}",
            f"--name={','.join(names)}",
            f"--starttime={start}",
            f"--format={SACCT_FORMAT}",
        )
        return jobs_of_sacct(text)

    def scancel(self, job_ids: Sequence[str]) -> None:
        with contextlib.suppress(SlurmRefused):
            self._run("scancel", "--quiet", *job_ids)

    def down_nodes(self) -> frozenset[str]:
        """Return the nodes that are down, failing or not responding."""
        text = self._run("sinfo", "--Node", "--noheader", "--format=%N|%t")
        pairs = (line.partition("|") for line in text.splitlines())
        return frozenset(
            node
            for node, _, state in pairs
            if state.startswith(("down", "fail")) or state.endswith("*")
        )

    def known_nodes(self) -> list[SlurmNode]:
        text = self._run("sinfo", "--Node", "--noheader", f"--format={SINFO_FORMAT}")
        return nodes_of_sinfo(text)

    def nodes(self, expression: str) -> list[str]:
        return self._run("scontrol", "show", "hostnames", expression).split()

    def partitions(self) -> dict[str, dict[str, str]]:
        """Return scontrol's settings of each partition (`MaxTime`, `TotalNodes`, …) by name."""
        text = self._run("scontrol", "show", "partition", "--oneliner", "--all")
        partitions = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in text.splitlines()]
        return {
            fields["PartitionName"]: fields for fields in partitions if "PartitionName" in fields
        }

    def settings(self) -> dict[str, str]:
        text = self._run("scontrol", "show", "config")
        pairs = (line.partition("=") for line in text.splitlines())
        return {name.strip(): value.strip() for name, sign, value in pairs if sign}

    def accounts(self) -> frozenset[str]:
        """Return the accounts that this user may charge; empty if accounting cannot tell."""
        try:
            text = self._run(
                "sacctmgr",
                "--noheader",
                "--parsable2",
                "show",
                "associations",
                "where",
                f"user={getpass.getuser()}",
                "format=account",
            )
        except (SlurmRefused, AccountingDisabled):
            return frozenset()
        return frozenset(text.split())

    def _run(self, program: str, *words: str) -> str:
        self.calls[program] += 1
        path = shutil.which(program)
        if path is None:
            raise SlurmUnavailable(f"there is no {program} on the PATH of this machine")
        code, output, errors = run_within(
            [path, *words], limit_s=self._limit_s, environment=self.environment()
        )
        if code is None:
            raise SlurmUnavailable(f"{program} did not answer within {self._limit_s:g} s")
        if code == 0:
            return output
        if code < 0:
            raise SlurmUnavailable(f"{program} was ended by {signal.Signals(-code).name}")
        raise error_of(errors.strip() or output, otherwise=f"{program} ended with {code}")


def error_of(text: str, *, otherwise: str) -> SlurmError:
    """Return the error that a failed command printed; its last line decides the kind.

    Args:
        otherwise: the message if it printed nothing.
    """
    lines = [_NOISE.sub("", line).strip() for line in text.splitlines() if line.strip()]
    message, last = _one_line(text) or otherwise, lines[-1] if lines else ""
    if _NO_ACCOUNTING.search(last):
        return AccountingDisabled(message)
    if _UNAVAILABLE.search(last):
        return SlurmUnavailable(message)
    beyond = _BEYOND_LIMIT.search(last) and any(map(_LIMIT.fullmatch, lines))
    if beyond or _NO_RECORD.search(last):
        return QueueFull(message)
    return SlurmRefused(message)


def run_within(
    command: Sequence[str], *, limit_s: float, environment: Mapping[str, str]
) -> tuple[int | None, str, str]:
    """Return (exit code, output, errors) of a command; the code is None after a timeout.

    On a timeout, its whole process group is killed.
    """
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        process_group=0,
    )
    try:
        output, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, "", ""
    return process.returncode, output, errors


def _one_line(text: str) -> str:
    lines = [_NOISE.sub("", line).strip() for line in text.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line))[:1000]
