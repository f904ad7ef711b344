"""Settings of a cluster: options of every job, and the environment on its nodes.

A profile is not validated here; `profile_from_dict` validates a user's tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import ConfigDict

from evaluators.adapter.adapter import Adapter
from evaluators.cluster.values import (
    Image,
    Interpreter,
    KnobCatalog,
    Line,
    Module,
    Name,
    NeededPath,
    NeededWord,
    OptionalPath,
    PlaceValue,
    SbatchOption,
    SrunOption,
    Text,
    Title,
    VariableName,
    VariableValue,
    Word,
)
from search_spaces.fields import Plausible, Switch
from search_spaces.knob import Knob

ContainerRuntime = Literal["apptainer", "singularity", "shifter", "podman-hpc"]
GpuRequest = Literal["gpus-per-node", "gres", "none"]

YEAR_H = 8760
_NO_OTHER_KEYS = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    """`[slurm]`: the account that a job is charged to, and where it runs.

    Attributes:
        gpu_request: how GPUs are requested: `gpus-per-node` (--gpus-per-node=8), `gres`
            (--gres=gpu:8), or `none` if nodes are always whole or `directives` request them.
        exclusive: whether a job has its nodes to itself.
        directives: further options of sbatch, each as one word (`--mail-type=NONE`).
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    account: Name = ""
    partition: Name = ""
    qos: Name = ""
    reservation: Name = ""
    constraint: Name = ""
    gpu_request: GpuRequest = "gpus-per-node"
    exclusive: Switch = True
    directives: tuple[SbatchOption, ...] = ()

    @property
    def named(self) -> dict[str, str]:
        names = ("account", "partition", "qos", "reservation", "constraint")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """`[tasks]`: placement of a node's ranks, one per GPU.

    Attributes:
        cpus_per_task: None leaves it to Slurm.
        srun: further options of srun, each as one word (`--gpu-bind=closest`).
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    cpus_per_task: Annotated[int | None, Plausible(maximum=4096)] = None
    srun: tuple[SrunOption, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Environment:
    """`[environment]`: the setup of a job before it trains, in this order.

    Attributes:
        modules: names for `module load`.
        virtual_environment: a folder whose `bin/activate` is sourced.
        variables: exported in the job.
        prologue: lines of bash that run last.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    modules: tuple[Module, ...] = ()
    virtual_environment: OptionalPath = ""
    variables: Mapping[VariableName, VariableValue] = field(default_factory=dict)
    prologue: Text = ""


@dataclass(frozen=True, kw_only=True)
class Container:
    """`[container]`: every task runs inside `image`; options are words for its runtime."""

    __pydantic_config__ = _NO_OTHER_KEYS

    runtime: ContainerRuntime
    image: Image
    options: tuple[Word, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ChosenTrainer:
    """`[trainer]`: the trainer of trials, by its adapter.

    Attributes:
        adapter: a built-in one, or the path of a file.
        folder: of the trainer, such as a checkout, instead of the adapter's.
        set: further places of its `[set]`, which take precedence.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    adapter: NeededWord
    folder: OptionalPath = ""
    set: Mapping[Line, PlaceValue] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Polling:
    """`[polling]`: intervals and limits of queries to Slurm.

    Attributes:
        interval_s: between two status calls, for any number of jobs; it grows while Slurm answers
            slowly.
        command_limit_s: timeout of a Slurm command, or of a query to Ray.
        settle_s: after this time a submitted job is in the queue, accounting knows of an ended one,
            and a file that a node wrote is visible here.
        accounting_limit_s: maximum wait for accounting to report how a job ended.
        full_queue_pause_s: pause before sbatch is tried again when the queue accepts no more jobs.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    interval_s: Annotated[float, Plausible(minimum=0.05, maximum=3600, unit="s")] = 5.0
    command_limit_s: Annotated[float, Plausible(minimum=0.1, maximum=3600, unit="s")] = 30.0
    settle_s: Annotated[float, Plausible(minimum=0.1, maximum=3600, unit="s")] = 3.0
    accounting_limit_s: Annotated[float, Plausible(minimum=0.1, maximum=3600, unit="s")] = 60.0
    full_queue_pause_s: Annotated[float, Plausible(minimum=0.1, maximum=3600, unit="s")] = 10.0


@dataclass(frozen=True, kw_only=True)
class Retries:
    """`[retries]`: for trials whose nodes failed, that were preempted, or that vanished.

    Attributes:
        attempts: maximum number of starts of a trial.
        node_failures: number of failures after which a node is not used again.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    attempts: Annotated[int, Plausible(maximum=100)] = 3
    node_failures: Annotated[int, Plausible(maximum=1000)] = 2


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """`[pilot]`: the allocation that pilot mode holds.

    Attributes:
        nodes: by default as many as the first campaign's pool.
        time_limit_h: of the allocation; another one follows while there is work.
        idle_release_s: seconds without work after which it is released.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    nodes: Annotated[int | None, Plausible(maximum=1_000_000)] = None
    time_limit_h: Annotated[float, Plausible(minimum=0.01, maximum=YEAR_H, unit="h")] = 2.0
    idle_release_s: Annotated[float, Plausible(minimum=0, maximum=3600 * YEAR_H, unit="s")] = 120.0


@dataclass(frozen=True, kw_only=True)
class RayCluster:
    """`[ray]`: the Ray cluster that the ray evaluator runs trials on.

    Attributes:
        address: of its head (`10.0.0.1:6379`) from a node of the cluster; of its client server
            (`ray://10.0.0.1:10001`) from any other machine.
        folder: on each node, for the folders of running trials.
        most_nodes: maximum size that an autoscaler reaches; None without one.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    address: Name = ""
    folder: NeededPath = "/tmp"
    most_nodes: Annotated[int | None, Plausible(maximum=1_000_000)] = None


@dataclass(frozen=True, kw_only=True)
class ClusterProfile:
    """One cluster as one user (or group) uses it.

    Attributes:
        machine: of the catalog; empty for any.
        python: the trainer's interpreter on the nodes; by default this service's own, or `python3`
            if a virtual environment, a module or a container provides one.
        knobs_from: built-in catalogues of knobs.
        knob: further knobs, which replace those of the same name.
        adapter: the trainer of trials, of `trainer` or of a campaign; None for the bundled one.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    name: Title
    description: Text = ""
    machine: Name = ""
    python: Interpreter = ""
    knobs_from: tuple[KnobCatalog, ...] = ()
    slurm: Scheduling = Scheduling()
    tasks: Tasks = Tasks()
    environment: Environment = Environment()
    container: Container | None = None
    trainer: ChosenTrainer | None = None
    polling: Polling = Polling()
    retries: Retries = Retries()
    pilot: Pilot = Pilot()
    ray: RayCluster = RayCluster()
    knob: Mapping[Name, Knob] = field(default_factory=dict)
    adapter: Adapter | None = None
