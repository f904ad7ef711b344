"""Limit the memory of a rank, and measure its peak.

On a GPU both apply to torch's allocator. On a CPU the limit is `RLIMIT_DATA`, on top of what the
process holds before the model is built (the interpreter and its libraries, which a GPU's memory
does not hold); torch's allocator then fails as it does on a GPU.
"""

from __future__ import annotations

import ctypes
import resource
from pathlib import Path
from typing import Protocol

import torch

GIB = 2**30
M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8
MAPPED_FROM_BYTES = 2**17
"""An allocation of at least this size has pages of its own (glibc's initial value)."""
THREAD_STACK_BYTES = 2**20


class Memory(Protocol):
    """The memory of one rank."""

    def limit(self, gib: float) -> None:
        """Limit this rank to `gib` GiB from now on, and start counting."""

    def lift(self) -> None:
        """Remove the limit, so that a rank that ran out can report it."""

    def peak_gib(self) -> float:
        """Return the peak since the limit was set, in GiB."""


class GpuMemory:
    """torch's allocator on the current GPU: reserved memory, as the limit counts it."""

    def limit(self, gib: float) -> None:
        total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, gib * GIB / total))
        torch.cuda.reset_peak_memory_stats()

    def lift(self) -> None:
        torch.cuda.set_per_process_memory_fraction(1.0)

    def peak_gib(self) -> float:
        return torch.cuda.max_memory_reserved() / GIB


class CpuMemory:
    """This process's private writable memory, as RLIMIT_DATA counts it.

    Linux has no peak of it, only of the whole address space. Beyond the baseline the two grow
    together, since all libraries are mapped by then.
    """

    def __init__(self) -> None:
        keep_address_space_small()
        self._size = 0

    def limit(self, gib: float) -> None:
        self._size = status_bytes("VmSize")
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        soft = status_bytes("VmData") + int(gib * GIB)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

    def lift(self) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))

    def peak_gib(self) -> float:
        return (status_bytes("VmPeak") - self._size) / GIB


def memory_of(device: str) -> Memory:
    return GpuMemory() if device == "cuda" else CpuMemory()


def status_bytes(field: str) -> int:
    """Return a value of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def keep_address_space_small() -> None:
    """Use one heap for all threads and small stacks, and return the memory of freed tensors.

    Otherwise each of gloo's threads takes 64 MiB of address space for a heap and 8 MiB for a stack,
    which would count as the model's. glibc would also raise its mmap threshold with each freed
    allocation, so that tensors would lie in the heap, which never shrinks; its size would depend
    on the order in which threads ran.
    """
    libc = ctypes.CDLL(None)
    libc.mallopt(M_ARENA_MAX, 1)
    libc.mallopt(M_MMAP_THRESHOLD, MAPPED_FROM_BYTES)
    attributes = ctypes.create_string_buffer(64)
    libc.pthread_attr_init(attributes)
    libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(THREAD_STACK_BYTES))
    libc.pthread_setattr_default_np(attributes)
