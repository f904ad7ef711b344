"""A file system that answers everything with one error, as a disk or a server of files does that
has failed: mounted by `python -m tests.failing_file_system FOLDER ERRNO`, which is its FUSE server.
"""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

DEVICE = "/dev/fuse"
NOT_ALLOWED = "no right to mount a file system in user space (FUSE), which no package gives"
INIT, UNANSWERED = 26, (2, 36, 42)
"""Opcodes of the kernel's FUSE protocol; it expects no answer to what it forgets or interrupts."""
REQUEST, ANSWER = struct.Struct("<IIQ"), struct.Struct("<IiQ")
VERSION = 7, 31
SETTLED = struct.Struct("<IIIIHHI36x")
"""The answer to INIT: version, read-ahead, flags, background requests, most bytes of a write."""


@contextmanager
def failing_file_system(folder: Path, error: int) -> Iterator[None]:
    """Let everything under `folder` fail with `error`; skip where nobody may mount FUSE."""
    if os.geteuid() != 0 or not Path(DEVICE).exists():
        pytest.skip(NOT_ALLOWED)
    command = [sys.executable, "-m", "tests.failing_file_system", str(folder), str(error)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        mounted = server.stdout.readline() == "mounted\n"
        try:
            if not mounted:
                pytest.skip(NOT_ALLOWED)
            yield
        finally:
            if mounted:
                subprocess.run(["umount", "--lazy", str(folder)], check=True)
            server.kill()


def serve(folder: str, error: int) -> None:
    """Mount the file system and answer the kernel until it is unmounted."""
    device = os.open(DEVICE, os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    mount = ["mount", "-i", "-t", "fuse", "-o", options, "failing", folder]
    subprocess.run(mount, pass_fds=[device], check=True)
    print("mounted", flush=True)
    while True:
        try:
            _, opcode, number = REQUEST.unpack_from(os.read(device, 1 << 17))
        except OSError as problem:
            if problem.errno == errno.ENODEV:  # it is unmounted
                return
            raise
        body = SETTLED.pack(*VERSION, 1 << 17, 0, 0, 0, 1 << 16) if opcode == INIT else b""
        if opcode not in UNANSWERED:
            result = 0 if opcode == INIT else -error
            os.write(device, ANSWER.pack(ANSWER.size + len(body), result, number) + body)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
