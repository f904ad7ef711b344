"""Check whether trials can run through Slurm: from this machine, with a profile, on a node."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from autotune.words.quantities import plural
from evaluators.cluster import ClusterProfile
from evaluators.slurm.commands import (
    AccountingDisabled,
    Slurm,
    SlurmError,
    SlurmRefused,
    SlurmUnavailable,
    run_within,
)
from evaluators.slurm.preflight import JobShape, check, lack_of_memory
from evaluators.slurm.probe import SETTLE_S, ProbeReport, TaskReport, probe
from search_spaces.machine import Machine
from server.cli.checks import CheckResult
from server.settings import Settings
from server.store.engine import is_shared

CLIENT = ("sbatch", "squeue", "sacct", "scancel", "srun", "sinfo", "scontrol")
LIMIT_S = 10.0
SHOWN_PARTITIONS = 6
SHOWN_REASONS = 3


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
        *nodes(slurm),
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


def nodes(slurm: Slurm) -> list[CheckResult]:
    """Return how many nodes take jobs, and why others do not; empty if Slurm does not know."""
    try:
        known = {node.name: node for node in slurm.known_nodes()}
    except SlurmError:
        return []
    out = [node for node in known.values() if not node.usable]
    if not out:
        return [CheckResult.ok("nodes", f"{plural(len(known), 'node')}, all take jobs")]
    kinds = Counter((node.state, node.reason) for node in out)
    texts = [
        f"{count} {'is' if count == 1 else 'are'} {state}: {reason or 'without a reason'}"
        for (state, reason), count in kinds.most_common(SHOWN_REASONS)
    ]
    texts += ["…"] if len(kinds) > SHOWN_REASONS else []
    found = f"{len(out)} of {plural(len(known), 'node')} take no jobs: {'; '.join(texts)}"
    return [CheckResult.warn("nodes", found, advice="trials that need them wait")]


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
    inside = f"inside job {job}, nodes: {nodes}; `--evaluator pilot` runs trials as its steps"
    return [CheckResult.ok("allocation", inside)]


def _output_of(slurm: Slurm, *words: str) -> str:
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
        job = JobShape(nodes=nodes, time_limit_s=TIME_LIMIT_S)
        problems = check(profile, job=job, machine=machine)
    except SlurmError as error:
        advice = "try again when Slurm answers"
        return [CheckResult.fail(name, str(error), advice=advice)]
    if not problems:
        possible = f"trials on up to {plural(nodes, 'node')} of {machine.name} can be submitted"
        return [CheckResult.ok(name, possible), *host_memory(profile, machine)]
    return [
        CheckResult.fail(
            f"{profile.name}: {problem.field}",
            ("" if problem.value in (None, "") else f"{problem.value!r}: ") + problem.reason,
            advice=f"valid: {problem.valid}" if problem.valid else "change it in the profile",
        )
        for problem in problems
    ]


def host_memory(profile: ClusterProfile, machine: Machine) -> list[CheckResult]:
    """Return a warning if trials get only a part of their nodes' memory."""
    try:
        lack = lack_of_memory(profile, machine=machine)
    except SlurmError:
        return []
    advice = "request more in the profile (slurm.directives), or whole nodes (exclusive = true)"
    return [CheckResult.warn(f"{profile.name}: memory", lack, advice=advice)] if lack else []


QUEUE_LIMIT_S = 600.0
JOB = "job on a node"


def check_node(
    profile: ClusterProfile,
    *,
    gpus_per_node: int,
    folder: Path,
    tell: Callable[[str], None],
    settle_s: float = SETTLE_S,
) -> list[CheckResult]:
    """Submit the job, wait for it, and return its findings.

    Args:
        folder: an existing folder in the file system for trials' files.
        tell: called with a sentence whenever the job's state changes.
        settle_s: seconds to wait for a job that Slurm no longer knows and that left no file.
    """
    try:
        report = probe(
            profile,
            gpus_per_node=gpus_per_node,
            folder=folder,
            wait_s=QUEUE_LIMIT_S,
            tell=tell,
            settle_s=settle_s,
        )
    except SlurmRefused as error:
        advice = "what it names is set in the profile, under [slurm]"
        return [CheckResult.fail(JOB, f"sbatch refused it: {error}", advice=advice)]
    except SlurmError as error:
        return [CheckResult.fail(JOB, str(error), advice="try again when Slurm answers")]
    except (OSError, ValueError) as error:
        reason = f"could not be written: {error}"
        return [CheckResult.fail(JOB, reason, advice="see the rows above")]
    return node_results(report, profile, gpus_per_node=gpus_per_node, folder=folder)


def node_results(
    report: ProbeReport, profile: ClusterProfile, *, gpus_per_node: int, folder: Path
) -> list[CheckResult]:
    """Return what is available on the node, or what prevents trials from running there."""
    if report.gave_up:
        advice = "try again later, or choose another partition, QOS or account in the profile"
        return [CheckResult.fail(JOB, report.gave_up, advice=advice)]
    if not report.node:
        reason = f"a job finds no {folder} on its node"
        advice = "put it where the nodes see it as well (AUTOTUNE_DATA_DIR, --data-dir)"
        return [CheckResult.fail("data folder", reason, advice=advice)]
    if len(report.ranks) < gpus_per_node:
        ended = f"{len(report.ranks)} of {gpus_per_node} tasks finished"
        reason = ": ".join(filter(None, [ended, "; ".join(report.last_lines)]))
        advice = "see [environment], [tasks], [container] and `python` in the profile"
        return [CheckResult.fail(f"tasks on {report.node}", reason, advice=advice)]
    first = report.ranks[0]
    results = (
        _data_folder(report, folder),
        *_interpreter(first, profile),
        *_packages(first, profile),
        _gpus(report),
        _power(first),
    )
    return [replace(result, name=f"{result.name} on {report.node}") for result in results]


def _data_folder(report: ProbeReport, folder: Path) -> CheckResult:
    if all(rank.sees_folder for rank in report.ranks):
        return CheckResult.ok("data folder", f"{folder} is seen by every task")
    advice = "bind it in the profile's container.options"
    unseen = f"{folder} is not seen inside the container"
    return CheckResult.fail("data folder", unseen, advice=advice)


def _interpreter(rank: TaskReport, profile: ClusterProfile) -> Iterator[CheckResult]:
    python = f"{rank.executable} ({rank.python})"
    if rank.trainer or profile.adapter:
        yield CheckResult.ok("Python", python)
    else:
        advice = "install autotune there too: pip install 'autotune[trials]'"
        without = f"{python} without autotune, whose trainer trials run"
        yield CheckResult.fail("Python", without, advice=advice)
    if rank.torch:
        yield CheckResult.ok("torch", rank.torch)
    else:
        reason = next(iter(rank.torch_error.splitlines()), "missing")
        advice = "name an interpreter with torch in the profile (python, or virtual_environment)"
        yield CheckResult.fail("torch", reason, advice=advice)
    if rank.deepspeed:
        yield CheckResult.ok("deepspeed", rank.deepspeed)
    elif profile.adapter is None:
        advice = f"install it into {rank.executable}"
        yield CheckResult.fail("deepspeed", "missing", advice=advice)


def _packages(rank: TaskReport, profile: ClusterProfile) -> Iterator[CheckResult]:
    adapter = profile.adapter
    if adapter is None or not adapter.needs:
        return
    if rank.missing:
        advice = f"install it into {rank.executable}"
        missing = f"without {', '.join(rank.missing)}"
        yield CheckResult.fail(f"packages of {adapter.name}", missing, advice=advice)
    else:
        yield CheckResult.ok(f"packages of {adapter.name}", ", ".join(adapter.needs))


def _gpus(report: ProbeReport) -> CheckResult:
    names_of_ranks = {rank.gpus for rank in report.ranks}
    if names_of_ranks == {()}:
        unseen = "torch sees none: trials run on the processor"
        advice = "if the node has any: is this torch built for them, and does gpu_request ask?"
        return CheckResult.warn("GPUs", unseen, advice=advice)
    numbers = {len(names) for names in names_of_ranks}
    if len(numbers) > 1:
        unequal = f"some tasks see {min(numbers)}, others {max(numbers)}"
        advice = "see tasks.srun and slurm.gpu_request in the profile"
        return CheckResult.fail("GPUs", unequal, advice=advice)
    name = next(iter(names_of_ranks))[0]
    seen = f"{len(report.ranks)} tasks, each sees {numbers.pop()} × {name}"
    return CheckResult.ok("GPUs", seen)


def _power(rank: TaskReport) -> CheckResult:
    if rank.power:
        return CheckResult.ok("power", f"measured with {rank.power}")
    advice = "energy stays empty; with a container, bind the tool into it"
    return CheckResult.warn("power", "neither nvidia-smi nor rocm-smi is installed", advice=advice)
