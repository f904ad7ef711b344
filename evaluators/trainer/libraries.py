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
    """Return the number of GPUs, of NVIDIA or AMD, that a process with `environment` may use.

    AMD GPUs count only if torch is built for them (`rocm`; None: check), since many processors
    have a small one of their own. An empty `CUDA_VISIBLE_DEVICES=` hides all GPUs, so that a
    machine with GPUs trains on its CPU.
    """
    if rocm is None:
        rocm = _torch_is_for_rocm()
    if rocm and (devices / "kfd").exists():
        # Each GCD has a render node next to the one compute device.
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
    return "cuda" if gpu_count() else "cpu"


MODULES = (
    "torch.distributed",
    "torch.utils.checkpoint",
    # Without this, each rank would import the following itself: in the backward pass of a stage or
    # of a recomputed layer, …
    "torch.fx.experimental.symbolic_shapes",
    # … and in an optimizer's first step and DeepSpeed's first `initialize`.
    "torch._dynamo",
    "deepspeed.runtime.zero.muon.muon_optimizer",
    "evaluators.trainer.rank",
)


def environment(device: Device, *, extensions: Path, one_host: bool = True) -> Mapping[str, str]:
    """Return the environment variables that must be set before torch is imported.

    Args:
        one_host: whether all ranks are on this machine and use its loopback interface.
        extensions: a folder for compiled operators, not shared: a killed build leaves a lock in it
            that blocks every later process.
    """
    loopback = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"} if one_host else {}
    return loopback | {
        # With more than one thread per rank a step takes 30 times as long: ranks share the cores.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "DS_ACCELERATOR": device,
        "TORCH_EXTENSIONS_DIR": str(extensions),
        # Otherwise DeepSpeed's Muon optimizer, decorated with `torch.compile`, imports the whole
        # compiler, which takes a second of every start. Nothing is compiled.
        "TORCHDYNAMO_DISABLE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def load() -> None:
    """Import everything that a rank needs, which takes seconds the first time.

    Raises:
        SystemExit: a package is missing.
    """
    logging.disable(logging.INFO)
    try:
        for name in MODULES:
            importlib.import_module(name)
        from deepspeed import ops
    except ModuleNotFoundError as error:
        sys.exit(f"{error}; local trials need: pip install 'autotune[trials]'")
    # It takes over a minute to compile and is only used for inference.
    ops.__compatible_ops__["deepspeed_shm_comm"] = False


def versions() -> dict[str, str]:
    """Return the versions of Python, torch and DeepSpeed."""
    names = ("torch", "deepspeed")
    return {"python": platform.python_version()} | {
        name: str(sys.modules[name].__version__) for name in names
    }
