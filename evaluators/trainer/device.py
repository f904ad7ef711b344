"""Whether a trial runs on GPUs or on the CPU, told without importing torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

Device = Literal["cpu", "cuda"]
"""As torch names them: AMD's are `cuda` too."""
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def gpu_count(
    environment: Mapping[str, str] = os.environ,
    devices: Path = Path("/dev"),
    *,
    rocm: bool | None = None,
) -> int:
    """Return how many GPUs a process started with `environment` may use, NVIDIA's or AMD's.

    AMD's count where torch is built for them (`rocm`; None looks): many a processor has a small
    one of its own.

    `CUDA_VISIBLE_DEVICES=` (empty) hides them all, so that a machine with GPUs trains on its CPU.
    """
    if rocm is None:
        rocm = _torch_is_for_rocm()
    if rocm and (devices / "kfd").exists():
        # Each GCD has a render node beside the one compute device.
        present = len(list(devices.glob("dri/renderD*")))
    else:
        present = sum(path.name[6:].isdigit() for path in devices.glob("nvidia*"))
    for variable in VISIBLE:
        if variable in environment:
            named = [name for name in environment[variable].split(",") if name.strip()]
            present = min(present, len(named))
    return present


def _torch_is_for_rocm() -> bool:
    try:
        return "rocm" in version("torch")
    except PackageNotFoundError:
        return False


def device_of_trials() -> Device:
    """Return `cuda` where there are GPUs, `cpu` otherwise."""
    return "cuda" if gpu_count() else "cpu"
