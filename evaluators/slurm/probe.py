"""A short job on one node that reports what a trial would find there."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from evaluators.attempt import ENDED
from evaluators.cluster.profile import ClusterProfile
from evaluators.cluster.shell import (
    container_words,
    environment_lines,
    srun_words,
)
from evaluators.program import Launcher
from evaluators.program.interpreter import import_path, python
from evaluators.slurm.batch_script import FOLDER_UNSEEN, job_head
from evaluators.slurm.commands import (
    Slurm,
    SlurmError,
    SlurmJob,
    SlurmUnavailable,
    why_pending,
)

MINUTES = 10
"""The job's time limit: the first import of torch from a shared file system takes some."""
SETTLE_S = 10.0
"""Maximum wait for a job that Slurm no longer lists, or for a file that it left."""
PAUSE_S = 1.0

_MARK = "[autotune probe] "
_NODE = f"""printf '{_MARK}{{"node": "%s"}}\\n' "${{SLURMD_NODENAME:-$(uname -n | cut -d. -f1)}}"
"""
_RANK = f"""
import json, os, shutil, sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

report = dict(
    rank=int(os.environ["SLURM_PROCID"]),
    python=sys.version.split()[0],
    executable=sys.executable,
    sees_folder=os.path.exists(sys.argv[1]),
    trainer=find_spec("evaluators") is not None,
    missing=[name for name in sys.argv[2:] if find_spec(name) is None],
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
        missing: packages that the adapter needs and that are not there.
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
    missing: tuple[str, ...] = ()


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
    needs = profile.adapter.needs if profile.adapter else ()
    words = (python(profile), "-c", _RANK, str(folder / "job.sh"), *needs)
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
