"""torch and DeepSpeed, imported in full before ranks are forked.

A process that has called `load` once may fork any number of ranks, each ready at once. It must
have one thread alone, and no GPU context: with GPUs each rank is a fresh process instead.
"""

from __future__ import annotations

import importlib
import logging
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from evaluators.trainer.device import Device

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
