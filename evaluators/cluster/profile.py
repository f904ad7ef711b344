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
    Flag,
    Image,
    Interpreter,
    Module,
    Name,
    NeededPath,
    OptionalPath,
    SbatchOption,
    SrunOption,
    Text,
    Title,
    VariableName,
    VariableValue,
    Word,
    number,
    whole,
)

ProgramName = Literal["trainer", "megatron-deepspeed", "adapter"]
MegatronVariant = Literal["main", "ornl"]
ContainerRuntime = Literal["apptainer", "singularity", "shifter", "podman-hpc"]
GpuRequest = Literal["gpus-per-node", "gres", "none"]

YEAR_H = 8760
_NO_OTHER_KEYS = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    """`[slurm]`: whose hours a job takes, and where it runs.

    Attributes:
        gpu_request: how GPUs are asked for: `gpus-per-node` (--gpus-per-node=8), `gres`
            (--gres=gpu:8), or `none` where nodes are always whole, or `directives` ask for them.
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
    exclusive: Flag = True
    directives: tuple[SbatchOption, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """`[tasks]`: how the ranks of a node are placed; there is one for each GPU.

    Attributes:
        cpus_per_task: None leaves it to Slurm.
        srun: further options of srun, each as one word (`--gpu-bind=closest`).
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    cpus_per_task: Annotated[int | None, whole(1, 4096)] = None
    srun: tuple[SrunOption, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Environment:
    """`[environment]`: what a job sets up before it trains, in this order.

    Attributes:
        modules: names for `module load`.
        virtual_environment: a folder whose `bin/activate` is sourced.
        variables: exported in the job.
        prologue: lines of bash, run last.
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
class Megatron:
    """`[megatron]`: a checkout of Megatron-DeepSpeed and what it trains on.

    Attributes:
        path: of the checkout.
        variant: `main`, or the older `ornl` fork (`pretrain_gpt_deepspeed.py`).
        data_path: an indexed dataset without .bin or .idx; empty: a small synthetic one is made.
        tokenizer_type: as Megatron names it; the null tokenizer needs no files.
        arguments: further arguments of every trial, each as one word; they win.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    path: NeededPath
    variant: MegatronVariant = "main"
    data_path: OptionalPath = ""
    tokenizer_type: Name = "NullTokenizer"
    tokenizer_model: OptionalPath = ""
    vocab_file: OptionalPath = ""
    merge_file: OptionalPath = ""
    arguments: tuple[Word, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Polling:
    """`[polling]`: how Slurm is asked.

    Attributes:
        interval_s: between two status calls, whatever the number of jobs; it grows on its own
            while Slurm is slow to answer.
        command_limit_s: after which a Slurm command, or a question to Ray, is given up.
        settle_s: after so long a job that was submitted is in the queue, accounting knows of one
            that ended, and a file that a node wrote is seen here.
        accounting_limit_s: so long accounting is waited for that does not yet know how a job ended.
        full_queue_pause_s: before sbatch is tried again after the limit on jobs in the queue was
            reached.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    interval_s: Annotated[float, number(0.05, 3600, unit="s")] = 5.0
    command_limit_s: Annotated[float, number(0.1, 3600, unit="s")] = 30.0
    settle_s: Annotated[float, number(0.1, 3600, unit="s")] = 3.0
    accounting_limit_s: Annotated[float, number(0.1, 3600, unit="s")] = 60.0
    full_queue_pause_s: Annotated[float, number(0.1, 3600, unit="s")] = 10.0


@dataclass(frozen=True, kw_only=True)
class Retries:
    """`[retries]`: trials whose nodes failed, that were preempted, or that vanished.

    Attributes:
        attempts: how often such a trial is started in all.
        node_failures: after so many failures a node is not used again.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    attempts: Annotated[int, whole(1, 100)] = 3
    node_failures: Annotated[int, whole(1, 1000)] = 2


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """`[pilot]`: the allocation that pilot mode holds.

    Attributes:
        nodes: None: as many as the first campaign's pool.
        time_limit_h: of the allocation; a new one follows while there is work.
        idle_release_s: without work it is given back after so long.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    nodes: Annotated[int | None, whole(1, 1_000_000)] = None
    time_limit_h: Annotated[float, number(0.01, YEAR_H, unit="h")] = 2.0
    idle_release_s: Annotated[float, number(0, 3600 * YEAR_H, unit="s")] = 120.0


@dataclass(frozen=True, kw_only=True)
class RayCluster:
    """`[ray]`: the Ray cluster that the ray evaluator runs trials on.

    Attributes:
        address: of its head (`10.0.0.1:6379`), from a machine that is a node of it; from any other
            that of its client server (`ray://10.0.0.1:10001`).
        folder: of each node, in which trials have a folder of theirs while they run.
        most_nodes: to which an autoscaler may bring it; None: it has the nodes that it has.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    address: Name = ""
    folder: NeededPath = "/tmp"
    most_nodes: Annotated[int | None, whole(1, 1_000_000)] = None


@dataclass(frozen=True, kw_only=True)
class ClusterProfile:
    """One cluster as one user (or group) uses it.

    Attributes:
        machine: of the catalog, that the profile belongs to; empty for any.
        program: what a trial trains with.
        python: the interpreter of that program on the nodes; empty: the one that this service runs
            with, or `python3` where a virtual environment, a module or a container brings one.
        adapter: with the program `adapter`, what describes the trainer. A campaign names it: no
            file of a profile has one.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    name: Title
    description: Text = ""
    machine: Name = ""
    program: ProgramName = "trainer"
    python: Interpreter = ""
    slurm: Scheduling = Scheduling()
    tasks: Tasks = Tasks()
    environment: Environment = Environment()
    container: Container | None = None
    megatron: Megatron | None = None
    polling: Polling = Polling()
    retries: Retries = Retries()
    pilot: Pilot = Pilot()
    ray: RayCluster = RayCluster()
    adapter: Adapter | None = None
