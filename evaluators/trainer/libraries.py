"""The device of a trial, and torch and DeepSpeed, imported in full before ranks are forked.

Importing this module imports neither. A process that has called `load` once may fork any number of
ranks, each ready at once. It must have one thread and no GPU context: with GPUs each rank is a
fresh process instead.
"""

from __future__ import annotations

import importlib
import logging
import os
import platform
import sys
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


MODULES = (
    "torch.distributed",
    "torch.utils.checkpoint",
    # Imported as a stage or a recomputed layer goes backward, which would then be each rank's.
    "torch.fx.experimental.symbolic_shapes",
    # Imported by an optimizer's first step, and by DeepSpeed's first `initialize`: each rank would
    # import them for itself.
    "torch._dynamo",
    "deepspeed.runtime.zero.muon.muon_optimizer",
    "evaluators.trainer.rank",
)


def environment(device: Device, *, extensions: Path, one_host: bool = True) -> Mapping[str, str]:
    """Return the environment variables that must be set before torch is imported.

    Args:
        one_host: all ranks are on this machine and talk over its loopback interface.
        extensions: an own folder for compiled operators: a killed build leaves a lock in it that
            would block every later process that shares it.
    """
    loopback = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"} if one_host else {}
    return loopback | {
        # More threads than one a rank cost 30 times the time: ranks share the cores.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "DS_ACCELERATOR": device,
        "TORCH_EXTENSIONS_DIR": str(extensions),
        # Nothing is compiled, and without it DeepSpeed's import of its Muon optimizer, which is
        # decorated with `torch.compile`, imports all of the compiler: a second of every start.
        "TORCHDYNAMO_DISABLE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def load() -> None:
    """Import what a rank needs; takes seconds the first time. SystemExit says what is missing."""
    logging.disable(logging.INFO)
    try:
        for name in MODULES:
            importlib.import_module(name)
        from deepspeed import ops
    except ModuleNotFoundError as error:
        sys.exit(f"{error}; local trials need: pip install 'autotune[trials]'")
    # Takes over a minute to compile, and serves inference alone. DeepSpeed keeps edits of this
    # table.
    ops.__compatible_ops__["deepspeed_shm_comm"] = False


def versions() -> dict[str, str]:
    """Return the versions of what runs a trial, by package name."""
    names = ("torch", "deepspeed")
    return {"python": platform.python_version()} | {
        name: str(sys.modules[name].__version__) for name in names
    }
