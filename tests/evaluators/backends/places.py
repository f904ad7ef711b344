"""Where trials run: for each backend, trials that do the same, and ways to steer them.

`python -m tests.evaluators.backends.places NAME FOLDER ADDRESS TOKEN…` submits trials there, and
polls them until it is killed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import psutil

from evaluators.adapter.reading import read_adapter
from evaluators.cluster.profile import ClusterProfile, RayCluster
from evaluators.local.backend import LocalBackend, LocalProgramBackend
from evaluators.ray.backend import RayBackend
from evaluators.simulated import SimulatedBackend
from evaluators.slurm.backend import SlurmBackend
from evaluators.slurm.pilot.backend import PilotBackend
from evaluators.trial import Backend, TrialProtocol, TrialRequest
from search_spaces.catalog import load_machine, load_model
from tests.cluster.cluster import Cluster
from tests.evaluators.adapter.samples import MACHINE, MODEL, strategy
from tests.evaluators.local import trials as bundled
from tests.evaluators.slurm import trials as jobs
from tests.evaluators.slurm.pilot import scene
from tests.patience import TRIAL_LIMIT_S
from tests.ray_nodes import RayNodes

ADAPTER = """
command = ["{python}", "steered.py", "{out}", "{iterations}", "{gradient_accumulation_steps}"]
[[refuse]]
when = "precision == 'fp16'"
because = "the script has no such choice"
[[read]]
log = '\\[(?P<step>\\d+)/\\d+\\] loss=(?P<loss>\\S+) (?P<ms>[\\d.]+)ms'
iteration_time_s = "ms / 1000"
[[read]]
log = 'peak (?P<mb>\\d+) MB'
peak_memory_gib = "mb / 1024"
"""
LIMITS: dict[str, dict[str, Any]] = {
    # its ranks run by then: Slurm's linuxproc may lose what starts while it kills
    "hang": {"time_limit_s": 5.0},
    "slow": {"give_up_above_s": (1e-6, 1e-6), "most_iterations": 10_000, "target_spread": 1e-9},
    "agreed": {"most_iterations": 10_000, "target_spread": 100.0},
}
"""What the protocols of some kinds of trials add; all others run to their end."""


def kind_of(token: str) -> str:
    return token.split("-")[0]


@dataclass(kw_only=True)
class Place(ABC):
    """A backend, and the folder of the trials that run there."""

    name: ClassVar[str]
    folder: Path
    ends: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:  # noqa: B027 (most need nothing)
        """Write what its trials need."""

    def backend(self) -> Backend:
        """Return a new one, as a service has that was started again."""
        return self.ends.enter_context(closing(self.make()))

    @abstractmethod
    def make(self) -> Backend: ...

    @abstractmethod
    def trial(self, token: str, *, nodes: int = 1) -> TrialRequest:
        """Return a request. What it does follows from the beginning of its name."""

    @abstractmethod
    def begun(self, trial: TrialRequest, attempt: int = 1) -> bool:
        """Return whether all of its ranks run."""

    @abstractmethod
    def release(self, trial: TrialRequest) -> None:
        """Let a trial end that is held."""

    def processes(self, trial: TrialRequest) -> list[int]:
        """Return the processes on this machine whose command names the trial."""
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            words = " ".join(process.info["cmdline"] or ()) + "/"
            named = f"/{trial.token}/" in words and str(self.folder) in words
            if named and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        return found


class Simulated(Place):
    name = "simulated"

    def make(self) -> Backend:
        return SimulatedBackend(time_scale=1.0)

    def trial(self, token: str, *, nodes: int = 1) -> TrialRequest:
        layouts: dict[str, dict[str, Any]] = {
            "oom": {"pipeline_parallel": 1, "zero_stage": 0},
            "crash": {"pipeline_parallel": 7},
        }
        layout = {"pipeline_parallel": 8, "zero_stage": 1, "precision": "fp16", "num_nodes": nodes}
        return TrialRequest(
            token=token,
            transformer=load_model("gpt-22b"),
            machine=load_machine("frontier"),
            strategy=strategy(**(layout | layouts.get(kind_of(token), {}))),
            protocol=TrialProtocol(
                accumulations=(1, 2), measured_iterations=3, **LIMITS.get(kind_of(token), {})
            ),
            directory=self.folder / token,
        )

    def begun(self, trial: TrialRequest, attempt: int = 1) -> bool:
        return attempt == 1 and (trial.directory / "submitted.json").exists()

    def release(self, trial: TrialRequest) -> None:
        """As if it had begun a day ago."""
        file = trial.directory / "submitted.json"
        times = json.loads(file.read_text())
        day = timedelta(days=1)
        moved = {name: (datetime.fromisoformat(at) - day).isoformat() for name, at in times.items()}
        file.write_text(json.dumps(moved))


class Bundled(Place):
    """This machine, and the trainer that comes along."""

    name = "bundled"
    warm: LocalBackend

    def backend(self) -> Backend:
        """Return that of all tests at first, which takes seconds to start."""
        first, self._given = not self._given, True
        return self.warm if first else super().backend()

    _given = False

    def make(self) -> Backend:
        return LocalBackend()

    def trial(self, token: str, *, nodes: int = 1) -> TrialRequest:
        assert nodes == 1
        kind = kind_of(token)
        wide: dict[str, Any] = {"transformer": bundled.WIDE, "memory_gib": 0.052}
        protocol: dict[str, Any] = {"accumulations": (1, 2), "measured_iterations": 3}
        if kind in {"hang", "held"}:
            protocol["measured_iterations"] = bundled.FOREVER
        return bundled.request(
            self.folder / token,
            bundled.strategy(micro_batch_size=8 if kind == "oom" else 1),
            ranks=2,
            **(protocol | LIMITS.get(kind, {}) | (wide if kind == "oom" else {})),
        )

    def begun(self, trial: TrialRequest, attempt: int = 1) -> bool:
        return attempt == 1 and bundled.training(trial)

    def release(self, trial: TrialRequest) -> None:
        pass

    def processes(self, trial: TrialRequest) -> list[int]:  # noqa: ARG002 (no other one runs)
        return [rank.pid for rank in bundled.ranks_of(os.getpid())]


class Scripted(Place):
    """Trials of `steered.py`, by an adapter.

    Attributes:
        home: the first folder of trials, which has the adapter.
    """

    home: Path
    profile = ClusterProfile(name="local")

    def __post_init__(self) -> None:
        self.home, adapters = self.folder, self.folder / "adapter"
        if not adapters.exists():
            adapters.mkdir()
            shutil.copy(Path(__file__).with_name("steered.py"), adapters)
            (adapters / "steered.toml").write_text(ADAPTER)
        adapter = read_adapter(adapters / "steered.toml")
        self.profile = replace(self.profile, adapter=adapter)

    def make(self) -> Backend:
        return LocalProgramBackend(self.profile)

    def trial(self, token: str, *, nodes: int = 1) -> TrialRequest:
        kind = kind_of(token)
        limits = {"time_limit_s": TRIAL_LIMIT_S} | LIMITS.get(kind, {})
        return TrialRequest(
            token=token,
            transformer=MODEL,
            machine=replace(MACHINE, max_nodes=8),
            strategy=strategy(num_nodes=nodes, precision="fp16" if kind == "refused" else "fp32"),
            protocol=TrialProtocol(accumulations=(1, 2), measured_iterations=3, **limits),
            directory=self.folder / token,
        )

    def begun(self, trial: TrialRequest, attempt: int = 1) -> bool:
        return len(self.nodes_of(trial, attempt)) == 2 * trial.strategy.num_nodes

    def nodes_of(self, trial: TrialRequest, attempt: int = 1) -> list[str]:
        """Return the node of each rank that has begun; on Ray by its process."""
        file = self.home / "adapter" / f"{trial.token}.begun"
        lines = file.read_text().splitlines() if file.exists() else []
        of_attempt = [line.split(" ")[2] for line in lines if f"attempt-{attempt} " in line]
        return sorted(of_attempt)

    def release(self, trial: TrialRequest) -> None:
        (self.home / "adapter" / f"{trial.token}.go").touch()


class Local(Scripted):
    name = "local"


class Remote(Scripted):
    """Where trials outlive the service, and are attempted again."""

    address = ""

    @abstractmethod
    def lose_node(self, trial: TrialRequest) -> str:
        """Let a node of the trial fail; return its name."""

    @abstractmethod
    def silence(self) -> None:
        """Let the scheduler not answer."""

    @abstractmethod
    def restore(self) -> None:
        """Let all be as it was."""

    @contextmanager
    def another_owner(self, *tokens: str) -> Iterator[None]:
        """Another process that submits them, held ones of two nodes, and is killed in the end."""
        words = [sys.executable, "-m", __name__, self.name, str(self.folder), self.address]
        with subprocess.Popen([*words, *tokens], cwd=Path(__file__).parents[3]) as owner:
            try:
                yield
            finally:
                owner.kill()


class Jobs(Remote):
    name = "sbatch"
    profile = jobs.PROFILE
    cluster: Cluster

    def make(self) -> Backend:
        return SlurmBackend(self.profile)

    def lose_node(self, trial: TrialRequest) -> str:
        """The last: with its first node a whole allocation is lost."""
        node = self.nodes_of(trial)[-1]
        self.cluster.down(node)
        return node

    def silence(self) -> None:
        self.cluster.stop_controller()

    def restore(self) -> None:
        self.cluster.start_controller()


class InAllocation(Jobs):
    name = "pilot"
    profile = scene.PROFILE

    def make(self) -> Backend:
        return PilotBackend(self.profile)


class OnRay(Remote):
    name = "ray"
    profile = jobs.PROFILE
    cluster: RayNodes

    def make(self) -> Backend:
        ray = RayCluster(address=self.address, folder=str(self.home))
        polling = replace(self.profile.polling, command_limit_s=6.0)
        return RayBackend(replace(self.profile, ray=ray, polling=polling))

    def lose_node(self, trial: TrialRequest) -> str:
        assert trial.strategy.num_nodes == 3, "it has all"
        self.cluster.kill_node()
        return "the last that was started"

    def silence(self) -> None:
        self.cluster.kill_head()

    def restore(self) -> None:
        self.cluster.start()


PLACES: dict[str, type[Place]] = {
    place.name: place for place in (Local, Jobs, InAllocation, OnRay, Simulated, Bundled)
}

"""Each test has the first few of them, for then pytest makes a place once for a module."""


def submit_and_wait(name: str, folder: str, address: str, *tokens: str) -> None:
    place = PLACES[name](folder=Path(folder))
    if isinstance(place, OnRay):
        place.address = address
    backend = place.make()
    trials = [place.trial(token, nodes=1 + (kind_of(token) == "held")) for token in tokens]
    for trial in trials:
        backend.submit(trial)
    while True:
        backend.poll(trials)
        time.sleep(0.1)


if __name__ == "__main__":
    submit_and_wait(*sys.argv[1:])
