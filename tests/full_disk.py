"""A file system that has no room, and then some."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.requirement import require


class FullDisk:
    """Mounted at a folder; for root alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        """Let no more files be made than there are."""
        there = os.statvfs(self.folder)
        self._mount(f"remount,nr_inodes={there.f_files - there.f_ffree}")

    def make_room(self) -> None:
        self._mount("remount,size=8m,nr_inodes=1000")

    def forbid_writing(self) -> None:
        """Let nobody write, as a file system does that met an error; nothing may be open there."""
        self._mount("remount,ro")

    def allow_writing(self) -> None:
        self._mount("remount,rw")

    def _mount(self, options: str) -> None:
        subprocess.run(_mounting(self.folder, options), capture_output=True, check=True)


@contextmanager
def full_disk(folder: Path, *, inodes: int = 2) -> Iterator[FullDisk]:
    """Mount one that holds so many files and folders, its own included; skip where nobody may."""
    folder.mkdir()
    first = _mounting(folder, f"size=64k,nr_inodes={inodes}")
    mounted = os.geteuid() == 0 and _succeeds(first)
    require(mounted, "right to mount a file system")
    try:
        yield FullDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _mounting(folder: Path, options: str) -> list[str]:
    return ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
