"""What tests of pilot mode share."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from evaluators.cluster.profile import ClusterProfile, Pilot, Polling, Retries, Scheduling
from evaluators.slurm.attempt_files import read_attempt_files
from evaluators.slurm.pilot.backend import PilotBackend
from evaluators.trial import TrialRequest
from tests.evaluators.slurm.trials import Lines, request

PROFILE = ClusterProfile(
    name="pilot test",
    slurm=Scheduling(partition="batch"),
    polling=Polling(interval_s=0.2, command_limit_s=5.0, settle_s=1.5),
    retries=Retries(attempts=3, node_failures=1),
    pilot=Pilot(nodes=8, time_limit_h=0.5, idle_release_s=60.0),
)
SECOND = "{srun} bash -c 'echo $SLURMD_NODENAME >>ran; sleep 1' && echo 0.25 >result"
"""Every rank says where it runs, and takes a second."""


@contextmanager
def pilot(text: str = SECOND, *, profile: ClusterProfile = PROFILE) -> Iterator[PilotBackend]:
    backend = PilotBackend(profile, program=Lines(text=text))
    try:
        yield backend
    finally:
        backend.close()


def requests(trials: Path, *widths: int, prefix: str = "t", **changes: Any) -> list[TrialRequest]:
    group = changes.pop("group", "")
    return [
        replace(request(trials, f"{prefix}{i}", nodes=width, **changes), group=group)
        for i, width in enumerate(widths)
    ]


@dataclass(frozen=True, kw_only=True)
class NodeUse:
    """A trial's last attempt on its nodes, in epoch seconds."""

    nodes: tuple[str, ...]
    begin: float
    end: float


def stay(trial: TrialRequest, attempt: int = 1) -> NodeUse:
    files = read_attempt_files(trial.directory / f"attempt-{attempt}")
    assert files.claim
    assert files.end
    nodes = tuple(files.claim.nodes.split(","))
    return NodeUse(nodes=nodes, begin=files.end.began_at, end=files.end.ended_at)


def gaps(stays: Sequence[NodeUse]) -> list[float]:
    """Seconds between two trials on one node; below zero where they shared it."""
    gaps = []
    for node in {node for each in stays for node in each.nodes}:
        on_it = sorted((each.begin, each.end) for each in stays if node in each.nodes)
        gaps += [later[0] - sooner[1] for sooner, later in pairwise(on_it)]
    return gaps


def ran_on(trial: TrialRequest, attempt: int = 1) -> list[str]:
    """The node of each rank."""
    return sorted((trial.directory / f"attempt-{attempt}" / "ran").read_text().split())


def commands_of(trial: TrialRequest) -> list[int]:
    """Processes on this machine whose command line names the trial's folder."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(trial.directory) in " ".join(process.info["cmdline"] or ())
        if process.pid != os.getpid()
    ]


def kill_commands_of(trial: TrialRequest) -> None:
    """As if the host of the service had been switched off."""
    for pid in commands_of(trial):
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            for each in [process, *process.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
