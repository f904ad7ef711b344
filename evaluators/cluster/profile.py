"""What a cluster wants to be told with every job, and what a job finds there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ProgramName = Literal["trainer", "megatron-deepspeed"]
MegatronVariant = Literal["main", "ornl"]
ContainerRuntime = Literal["apptainer", "singularity", "shifter", "podman-hpc"]
GpuRequest = Literal["gpus-per-node", "gres", "none"]


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    """`[slurm]`: with whose hours, and where.

    Attributes:
        gpu_request: how GPUs are asked for: `gpus-per-node` (--gpus-per-node=8), `gres`
            (--gres=gpu:8), or `none` where nodes are always whole, or `directives` ask for them.
        exclusive: whether a job has its nodes to itself.
        directives: further options of sbatch, each as one word (`--mail-type=NONE`).
    """

    account: str = ""
    partition: str = ""
    qos: str = ""
    reservation: str = ""
    constraint: str = ""
    gpu_request: GpuRequest = "gpus-per-node"
    exclusive: bool = True
    directives: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """`[tasks]`: how the ranks of a node are placed; there is one for each GPU.

    Attributes:
        cpus_per_task: None leaves it to Slurm.
        srun: further options of srun, each as one word (`--gpu-bind=closest`).
    """

    cpus_per_task: int | None = None
    srun: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Environment:
    """`[environment]`: what a job sets up before it trains, in this order.

    Attributes:
        modules: names for `module load`.
        virtual_environment: a folder whose `bin/activate` is sourced.
        variables: exported in the job.
        prologue: lines of bash, run last.
    """

    modules: tuple[str, ...] = ()
    virtual_environment: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    prologue: str = ""


@dataclass(frozen=True, kw_only=True)
class Container:
    """`[container]`: every task runs inside `image`; options are words for its runtime."""

    runtime: ContainerRuntime
    image: str
    options: tuple[str, ...] = ()


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

    path: str
    variant: MegatronVariant = "main"
    data_path: str = ""
    tokenizer_type: str = "NullTokenizer"
    tokenizer_model: str = ""
    vocab_file: str = ""
    merge_file: str = ""
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Polling:
    """`[polling]`: how Slurm is asked.

    Attributes:
        interval_s: between two status calls, whatever the number of jobs; it grows on its own
            while Slurm is slow to answer.
        command_limit_s: after which a Slurm command is given up.
    """

    interval_s: float = 5.0
    command_limit_s: float = 30.0


@dataclass(frozen=True, kw_only=True)
class Retries:
    """`[retries]`: trials whose nodes failed, that were preempted, or that vanished.

    Attributes:
        attempts: how often such a trial is started in all.
        node_failures: after so many failures a node is not used again.
    """

    attempts: int = 3
    node_failures: int = 2


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """`[pilot]`: the allocation that pilot mode holds.

    Attributes:
        nodes: None: as many as the first campaign's pool.
        time_limit_h: of the allocation; a new one follows while there is work.
        idle_release_s: without work it is given back after so long.
    """

    nodes: int | None = None
    time_limit_h: float = 2.0
    idle_release_s: float = 120.0


@dataclass(frozen=True, kw_only=True)
class ClusterProfile:
    """One cluster as one user (or group) uses it.

    Attributes:
        machine: of the catalog, that the profile belongs to; empty for any.
        program: what a trial trains with.
        python: the interpreter of that program on the nodes; empty: the one that this service runs
            with, or `python3` where a virtual environment, a module or a container brings one.
    """

    name: str
    description: str = ""
    machine: str = ""
    program: ProgramName = "trainer"
    python: str = ""
    slurm: Scheduling = Scheduling()
    tasks: Tasks = Tasks()
    environment: Environment = Environment()
    container: Container | None = None
    megatron: Megatron | None = None
    polling: Polling = Polling()
    retries: Retries = Retries()
    pilot: Pilot = Pilot()
