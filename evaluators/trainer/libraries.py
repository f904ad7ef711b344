"""torch and DeepSpeed, imported so that nothing is compiled and nothing is left for later.

A process that has called `load` once may fork any number of ranks, each ready at once. It must
have one thread alone, and no GPU context: with GPUs each rank is a fresh process instead.
"""

from __future__ import annotations

import importlib
import logging
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autotune.garbage import staying
from evaluators.trainer.compiler import do_without_compiler
from evaluators.trainer.device import Device

MODULES = (
    "torch.distributed",
    "torch.utils.checkpoint",
    # Imported as a stage or a recomputed layer goes backward, which would then be each rank's.
    "torch.fx.experimental.symbolic_shapes",
    "evaluators.trainer.rank",
)
MUON = "deepspeed.runtime.zero.muon.muon_optimizer"
"""Imported by DeepSpeed at its first `initialize`, whatever the optimizer is."""


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
        "PYTHONUNBUFFERED": "1",
    }


def load() -> None:
    """Import what a rank needs; takes seconds the first time. SystemExit says what is missing."""
    logging.disable(logging.INFO)
    try:
        with staying():
            do_without_compiler()
            for name in MODULES:
                importlib.import_module(name)
            with _nothing_compiled():
                importlib.import_module(MUON)
    except ModuleNotFoundError as error:
        sys.exit(f"{error}; local trials need: pip install 'autotune[trials]'")
    # Compiles for over a minute, and only serves inference.
    communication = sys.modules["deepspeed.comm.torch"]
    communication.build_shm_op = lambda: None  # type: ignore[attr-defined]


@contextmanager
def _nothing_compiled() -> Iterator[None]:
    """Leave functions as they are written that ask for torch's compiler.

    To ask for it imports it, a second of a core in every job; Muon does, and no trial uses Muon.
    """
    import torch

    def as_written(function: Any = None, **_options: Any) -> Any:
        return as_written if function is None else function

    compiler = torch.compile
    torch.compile = as_written  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.compile = compiler


def versions() -> dict[str, str]:
    """Return the versions of what runs a trial, by package name."""
    names = ("torch", "deepspeed")
    return {"python": platform.python_version()} | {
        name: str(sys.modules[name].__version__) for name in names
    }
