"""Whether a folder lies on a file system that several hosts share."""

from __future__ import annotations

from pathlib import Path

import psutil

NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "cifs", "smb3", "smbfs", "beegfs", "afs", "ceph"}
    | {"9p", "panfs", "orangefs", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "fuse.ceph"}
)


def file_system_of(folder: Path, mounts: dict[str, str]) -> str:
    """Type of the file system that holds `folder`; `mounts` gives each mount point's type."""
    path = folder.absolute()
    for parent in (path, *path.parents):
        if str(parent) in mounts:
            return mounts[str(parent)]
    return ""


def is_shared(folder: Path) -> bool:
    """SQLite's write-ahead log needs memory shared by all its users: wrong across hosts."""
    mounts = {p.mountpoint: p.fstype for p in psutil.disk_partitions(all=True)}
    return file_system_of(folder.resolve(), mounts) in NETWORK_FILE_SYSTEMS
