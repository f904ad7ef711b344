"""Check a node with a short job, for `autotune doctor --live`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from evaluators.cluster import ClusterProfile
from evaluators.slurm.commands import SlurmError, SlurmRefused
from evaluators.slurm.preflight import SETTLE_S, ProbeReport, TaskReport, probe
from server.cli.checks import CheckResult

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
        *_megatron(report, profile),
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
    """Yield which Python a task uses, and whether it has autotune, torch and DeepSpeed."""
    python = f"{rank.executable} ({rank.python})"
    if rank.trainer or profile.program != "trainer":
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
    else:
        advice = f"install it into {rank.executable}"
        yield CheckResult.fail("deepspeed", "missing", advice=advice)


def _megatron(report: ProbeReport, profile: ClusterProfile) -> list[CheckResult]:
    """Return whether every task can import the profile's checkout of Megatron-DeepSpeed, if trials
    use it, and compile its extensions."""
    if profile.program != "megatron-deepspeed" or profile.megatron is None:
        return []
    errors = [rank.megatron_error for rank in report.ranks if rank.megatron_error]
    if not errors:
        imported = CheckResult.ok("Megatron", f"{profile.megatron.path} can be imported")
        return [imported, _helpers(report.ranks[0], profile.megatron.path)]
    error = errors[0].splitlines()[0]
    advice = (
        f"install what it names into {report.ranks[0].executable} (torchvision matching your "
        "torch), or mend megatron.path in the profile"
    )
    reason = f"{profile.megatron.path} cannot be imported: {error}"
    return [CheckResult.fail("Megatron", reason, advice=advice)]


def _helpers(rank: TaskReport, checkout: str) -> CheckResult:
    if not rank.helpers_error:
        return CheckResult.ok("Megatron's helpers", "compiled, or can be")
    advice = (
        f"install pybind11 into {rank.executable}, and a C++ compiler; or run "
        f"`make -C {checkout}/megatron/data` where both are"
    )
    reason = f"they do not compile: {rank.helpers_error}"
    return CheckResult.fail("Megatron's helpers", reason, advice=advice)


def _gpus(report: ProbeReport) -> CheckResult:
    """Return the GPUs that tasks see; without any, trials run on the CPU."""
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
