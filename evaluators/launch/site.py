"""What a launch needs beyond Slurm's common ground, for each machine of the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from search_spaces.machine import Machine


@dataclass(frozen=True, kw_only=True)
class Site:
    """One machine's habits.

    Attributes:
        directives: further `#SBATCH` lines.
        srun: further options of srun.
        environment: variables that are exported unless the user has set them.
        note: a sentence for the head of the script.
    """

    directives: tuple[str, ...] = ()
    srun: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


# Slingshot with RCCL: the network reads GPU memory directly, and libfabric watches for freed
# pages by userfaultfd because its default monitor deadlocks with RCCL (OLCF and LUMI user guides).
_SLINGSHOT_RCCL = {"NCCL_NET_GDR_LEVEL": "3", "FI_MR_CACHE_MONITOR": "userfaultfd"}

# 64 cores a node, one of every eight kept for the system: 7 for each of the 8 GCDs.
_GCD_NODE = Site(srun=("--cpus-per-task=7", "--gpu-bind=closest"), environment=_SLINGSHOT_RCCL)

_SITES: Mapping[str, Site] = {
    "frontier": _GCD_NODE,
    "lumi-g": _GCD_NODE,
    "perlmutter": Site(directives=("--constraint=gpu",), srun=("--cpus-per-task=32",)),
    "summit": Site(note="Summit was run by LSF: this is the same launch in Slurm's words."),
    "polaris": Site(note="Polaris is run by PBS: this is the same launch in Slurm's words."),
    "aurora": Site(note="Aurora is run by PBS: this is the same launch in Slurm's words."),
}


def site_of(machine: Machine) -> Site:
    """The habits of a machine of the catalog, none for one that it does not know."""
    return _SITES.get(machine.name, Site())
