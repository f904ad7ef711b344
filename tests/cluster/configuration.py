"""The configuration files of a cluster whose nodes all live on this machine."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PARTITIONS: Mapping[str, str] = {
    "batch": "Nodes=ALL Default=YES MaxTime=1-00:00:00",
    "short": "Nodes={half} MaxTime=5",
    "scavenge": "Nodes=ALL MaxTime=1-00:00:00 PreemptMode=REQUEUE",
    "urgent": "Nodes=ALL MaxTime=1-00:00:00 PriorityTier=10",
}
LOOPBACK = "127.0.0.1"
UNKNOWN = "127.0.0.0"  # of a host whose name means nothing
SETTINGS: Mapping[str, str] = {
    "ClusterName": "loopback",
    "AuthType": "auth/munge",
    "CredType": "cred/munge",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "SwitchType": "switch/none",
    "MpiDefault": "none",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core",
    "SchedulerType": "sched/backfill",
    "SchedulerParameters": "batch_sched_delay=0,sched_interval=1,sched_min_interval=0,"
    "bf_interval=1,bf_continue",
    "SlurmdParameters": "config_overrides",
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "REQUEUE",
    "JobAcctGatherType": "jobacct_gather/none",
    "JobCompType": "jobcomp/none",
    "AccountingStorageType": "accounting_storage/none",
    "ReturnToService": "1",
    "SlurmctldTimeout": "10",
    "SlurmdTimeout": "6",
    "MessageTimeout": "5",
    "TCPTimeout": "2",
    "InactiveLimit": "0",
    # longer than a rank's END_LIMIT_S: linuxproc loses what starts while it kills
    "KillWait": "5",
    "MinJobAge": "300",
    "DebugFlags": "NO_CONF_HASH",
    "SlurmctldDebug": "info",
    "SlurmdDebug": "info",
}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a cluster looks like.

    Attributes:
        gpus: device nodes of each node; 0 where they cannot be made.
        cpus: of each node; they need not exist.
        partitions: what slurm.conf says about each; `{half}` stands for the first half of nodes.
        options: further settings of slurm.conf; they win, and an empty one takes the setting out.
        job_submit: the site's job_submit.lua, which may refuse a job; empty for none.
    """

    nodes: int = 8
    gpus: int = 8
    cpus: int = 64
    accounting: bool = False
    partitions: Mapping[str, str] = field(default_factory=lambda: PARTITIONS)
    options: Mapping[str, str] = field(default_factory=dict)
    job_submit: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"n{number:02d}" for number in range(1, self.nodes + 1))


def write(
    folder: Path,
    shape: Shape,
    *,
    controller: int,
    nodes: Sequence[int],
    accounting: Mapping[str, str],
) -> None:
    """slurm.conf and gres.conf; `controller` and `nodes` are ports."""
    lua = {"JobSubmitPlugins": "lua"} if shape.job_submit else {}
    settings = {**_settings(folder, shape, controller), **accounting, **lua, **shape.options}
    lines = [f"{key}={value}" for key, value in settings.items() if value]
    for name, port in zip(shape.names, nodes, strict=True):
        lines.append(_node(name, port, shape))
    half = ",".join(shape.names[: max(1, shape.nodes // 2)])
    for name, text in shape.partitions.items():
        lines.append(f"PartitionName={name} {text.format(half=half)}")
    (folder / "slurm.conf").write_text("\n".join(lines) + "\n")
    if shape.job_submit:
        (folder / "job_submit.lua").write_text(shape.job_submit)
    if shape.gpus:
        devices = f"{folder}/devices/gpu[0-{shape.gpus - 1}]"
        (folder / "gres.conf").write_text(f"AutoDetect=off\nName=gpu File={devices}\n")


def _settings(folder: Path, shape: Shape, port: int) -> dict[str, str]:
    own = {
        "CommunicationParameters": "NoCtldInAddrAny,NoInAddrAny" if is_own_address() else "",
        "SlurmctldHost": f"{host_name()}({host_address()})",
        "SlurmctldPort": str(port),
        "SlurmUser": getpass.getuser(),
        "SlurmdUser": getpass.getuser(),
        "AuthInfo": f"socket={folder}/munge.socket,cred_expire=5",
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": f"{folder}/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/spool/%n.pid",
        "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
        "SlurmdLogFile": f"{folder}/log/%n.log",
    }
    gres = {"GresTypes": "gpu"} if shape.gpus else {}
    return {**SETTINGS, **own, **gres}


def _node(name: str, port: int, shape: Shape) -> str:
    gres = f" Gres=gpu:{shape.gpus}" if shape.gpus else ""
    return (
        f"NodeName={name} NodeHostname={host_name()} NodeAddr={host_address()} Port={port} "
        f"CPUs={shape.cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={shape.cpus} "
        f"ThreadsPerCore=1 RealMemory=64000{gres} State=UNKNOWN"
    )


def host_name() -> str:
    """With which the daemons compare themselves."""
    return socket.gethostname().partition(".")[0]


def is_own_address() -> bool:
    """Whether the daemons may listen there alone.

    They answer to whence a call came, and a call from this host to 127.0.1.1, which Debian's
    installer gives to its name, comes from 127.0.0.1: such a host has to listen at both.
    """
    address = named_address()
    return address == LOOPBACK or not address.startswith("127.")


def host_address() -> str:
    """Where the daemons are spoken to: in a container it is not loopback."""
    return named_address() if is_own_address() else LOOPBACK


def named_address() -> str:
    try:
        return socket.gethostbyname(host_name())
    except OSError:
        return UNKNOWN


def make_devices(folder: Path, count: int) -> None:
    """Slurm wants a GPU to be a device: these are all /dev/null. Only root can make them."""
    (folder / "devices").mkdir()
    for number in range(count):
        os.mknod(folder / "devices" / f"gpu{number}", 0o20666, os.makedev(1, 3))
