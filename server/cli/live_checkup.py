"""What a short job on one node finds, for `autotune doctor --live`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from evaluators.cluster import ClusterProfile
from evaluators.slurm.commands import SlurmError, SlurmRefused
from evaluators.slurm.probe_job import Found, Rank, probe
from server.cli.check import Check

QUEUE_LIMIT_S = 600.0
JOB = "job on a node"
MISSING = "missing"


def on_a_node(
    profile: ClusterProfile, *, gpus_per_node: int, folder: Path, tell: Callable[[str], None]
) -> list[Check]:
    """Submit the job, wait for it, and judge what it found; `tell` is given how it stands.

    Args:
        folder: that exists, in the file system where trials' files will be.
    """
    try:
        found = probe(
            profile,
            gpus_per_node=gpus_per_node,
            folder=folder,
            wait_s=QUEUE_LIMIT_S,
            tell=tell,
        )
    except SlurmRefused as error:
        advice = "what it names is set in the profile, under [slurm]"
        return [_failed(JOB, f"sbatch refused it: {error}", advice)]
    except SlurmError as error:
        return [_failed(JOB, str(error), "try again when Slurm answers")]
    except (OSError, ValueError) as error:
        return [_failed(JOB, f"could not be written: {error}", "see the rows above")]
    return judged(found, profile, gpus_per_node=gpus_per_node, folder=folder)


def judged(
    found: Found, profile: ClusterProfile, *, gpus_per_node: int, folder: Path
) -> list[Check]:
    """In words: what there is, or what keeps trials from running there."""
    if found.gave_up:
        advice = "try again later, or name another partition, QOS or account in the profile"
        return [_failed(JOB, found.gave_up, advice)]
    if not found.node:
        advice = "put it where the nodes see it as well (AUTOTUNE_DATA_DIR, --data-dir)"
        return [_failed("data folder", f"a job finds no {folder} on its node", advice)]
    said = "; ".join(found.said)
    if len(found.ranks) < gpus_per_node:
        started = f"{len(found.ranks)} of {gpus_per_node} tasks came to their end"
        advice = "see [environment], [tasks], [container] and `python` in the profile"
        return [_failed(f"tasks on {found.node}", ": ".join(filter(None, [started, said])), advice)]
    first = found.ranks[0]
    checks = (_data_folder(found, folder), _interpreter(first, profile), _torch(first))
    rest = (_deepspeed(first), _gpus(found), _power(first))
    return [_at(found.node, check) for check in (*checks, *rest)]


def _at(node: str, check: Check) -> Check:
    name = f"{check.name} on {node}"
    return Check(name=name, status=check.status, found=check.found, advice=check.advice)


def _failed(name: str, found: str, advice: str) -> Check:
    return Check(name=name, status="fail", found=found, advice=advice)


def _data_folder(found: Found, folder: Path) -> Check:
    if all(rank.sees_folder for rank in found.ranks):
        return Check(name="data folder", status="ok", found=f"{folder} is seen by every task")
    advice = "bind it in the profile's container.options"
    return _failed("data folder", f"{folder} is not seen inside the container", advice)


def _interpreter(rank: Rank, profile: ClusterProfile) -> Check:
    found = f"{rank.executable} ({rank.python})"
    if rank.trainer or profile.program != "trainer":
        return Check(name="Python", status="ok", found=found)
    advice = "install autotune there too: pip install 'autotune[trials]'"
    return _failed("Python", f"{found} without autotune, whose trainer trials run", advice)


def _torch(rank: Rank) -> Check:
    if rank.torch:
        return Check(name="torch", status="ok", found=rank.torch)
    found = next(iter(rank.torch_error.splitlines()), MISSING)
    advice = "name an interpreter with torch in the profile (python, or virtual_environment)"
    return _failed("torch", found, advice)


def _deepspeed(rank: Rank) -> Check:
    if rank.deepspeed:
        return Check(name="deepspeed", status="ok", found=rank.deepspeed)
    return _failed("deepspeed", MISSING, f"install it into {rank.executable}")


def _gpus(found: Found) -> Check:
    seen = {rank.gpus for rank in found.ranks}
    if seen == {()}:
        advice = "if the node has any: is this torch built for them, and does gpu_request ask?"
        unseen = "torch sees none: trials run on the processor"
        return Check(name="GPUs", status="warn", found=unseen, advice=advice)
    numbers = {len(gpus) for gpus in seen}
    if len(numbers) > 1:
        some = f"some tasks see {min(numbers)}, others {max(numbers)}"
        advice = "see tasks.srun and slurm.gpu_request in the profile"
        return _failed("GPUs", some, advice)
    name = next(iter(next(iter(seen))))
    shown = f"{len(found.ranks)} tasks, each sees {numbers.pop()} × {name}"
    return Check(name="GPUs", status="ok", found=shown)


def _power(rank: Rank) -> Check:
    if rank.power:
        return Check(name="power", status="ok", found=f"{rank.power} tells it")
    advice = "energy stays empty; with a container, bind the tool into it"
    found = "neither nvidia-smi nor rocm-smi is there"
    return Check(name="power", status="warn", found=found, advice=advice)
