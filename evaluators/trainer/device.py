"""Whether a trial runs on GPUs or on the CPU, told without importing torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

Device = Literal["cpu", "cuda"]


def gpu_count(environment: Mapping[str, str] = os.environ, devices: Path = Path("/dev")) -> int:
    """NVIDIA GPUs that a process started with `environment` may use.

    `CUDA_VISIBLE_DEVICES=` (empty) hides them all, so that a machine with GPUs trains on its CPU.
    """
    present = sum(path.name[6:].isdigit() for path in devices.glob("nvidia*"))
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    return min(present, len([name for name in visible.split(",") if name.strip()]))


def device_of_trials() -> Device:
    """GPUs where there are some, the CPU otherwise."""
    return "cuda" if gpu_count() else "cpu"
