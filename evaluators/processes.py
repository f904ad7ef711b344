"""Child processes that never outlive their parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO, Any, NoReturn

import evaluators

PR_SET_PDEATHSIG = 1  # from linux/prctl.h
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def environment() -> dict[str, str]:
    root = str(Path(evaluators.__file__).parents[1])
    path = filter(None, [root, os.environ.get("PYTHONPATH")])
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when `parent` ends, and exit now if it already has.

    The kernel watches the *thread* that started this process, which must live as long as its
    process. Only Linux supports this.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def fork(work: Callable[[], int]) -> int:
    """Run `work` in a child that dies with this process; its result is the exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    return os.fork() or _work_and_exit(work, parent)


def _work_and_exit(work: Callable[[], int], parent: int) -> NoReturn:
    code = 1
    try:
        die_with(parent)
        code = work()
    finally:
        os._exit(code)


def kill(pid: int) -> None:
    """Kill a child and its process group, and reap it."""
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def exit_code_of(pid: int) -> int | None:
    """Return the exit code of a child and reap it; None while it runs.

    A negative code is the number of the signal that ended it.
    """
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def processor_time_s(pid: int, *, main_thread_only: bool = False) -> float:
    """Return the CPU seconds that a process has used; 0 if it no longer exists."""
    process = Path(f"/proc/{pid}/task/{pid}" if main_thread_only else f"/proc/{pid}")
    try:
        fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


class PipedProcess:
    """`python -m MODULE SOCKET PARENT`, which this process speaks to over `pipe`.

    The kernel ends it with the thread that makes this object (`owner`).

    Args:
        variables: added to its environment.
        output: of it, and its errors.
    """

    def __init__(
        self,
        module: str,
        *,
        variables: Mapping[str, str],
        folder: str | None = None,
        output: int | IO[bytes] = subprocess.DEVNULL,
    ) -> None:
        self.pipe, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno()), str(os.getpid())],
                env={**environment(), **variables},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )

    def wait(self) -> None:
        self._process.wait()

    def kill(self) -> None:
        self._process.kill()


def owner() -> Connection[Any, Any]:
    """Return the pipe of a `PipedProcess` at its other end; from now on this process ends with its
    owner."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with(parent)
    return Connection(descriptor)


class ProcessGroup:
    """A process group with a guard process, which kills the group when this process ends for
    whatever reason: the kernel then closes our end of the guard's pipe."""

    def __init__(self) -> None:
        self._guard = subprocess.Popen(
            ["bash", "-c", "trap '' TERM; read -r _; kill -KILL 0"],
            stdin=subprocess.PIPE,
            process_group=0,
        )

    def start(
        self, words: Sequence[str], *, variables: Mapping[str, str], folder: Path, output: Path
    ) -> subprocess.Popen[bytes]:
        """Start a group in `folder`; append its output to the file `output`."""
        with output.open("ab") as file:
            return subprocess.Popen(
                words,
                env=variables,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                process_group=self._guard.pid,
            )

    def ask_to_end(self) -> None:
        os.killpg(self._guard.pid, signal.SIGTERM)

    def end(self) -> None:
        """Kill all processes; may be called again."""
        assert self._guard.stdin
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        self._guard.wait()
