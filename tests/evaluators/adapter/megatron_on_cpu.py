"""Runs a rank of Megatron-LM's `pretrain_gpt` on CPUs, with gloo.

    python -m tests.evaluators.adapter.megatron_on_cpu CHECKOUT WORDS…

The checkout's `megatron/core/datasets/helpers_cpp` must have been compiled (`make` there).
Stand-ins: those of `megatron_checkout`; tensors and groups that ask for CUDA lie on CPUs and talk
by gloo; streams, events and random states of CUDA are none, or the CPU's; memory is the largest of
the process (`ru_maxrss`). Layers are Megatron's own (`--transformer-impl local`), and unfused.
Megatron-FSDP, which waits for events, and sequence parallelism, which needs Transformer Engine or
Apex, do not run so.
"""

from __future__ import annotations

import importlib
import resource
import runpy
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from tests.evaluators.adapter.megatron_checkout import HOPPER, prepare

GPUS = 8
OPTIONS = (
    *("--transformer-impl", "local", "--distributed-backend", "gloo"),
    *("--no-gradient-accumulation-fusion", "--no-masked-softmax-fusion", "--no-rope-fusion"),
    *("--no-bias-swiglu-fusion", "--no-bias-gelu-fusion", "--no-bias-dropout-fusion"),
    "--no-persist-layer-norm",
)
TYPES = "BFloat16Tensor ByteTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor"


def _asks_for_cuda(device: Any) -> bool:
    return type(device) is int or str(device).startswith("cuda")


def _on_cpus(torch: Any) -> None:
    """Have whatever asks for CUDA lie on CPUs."""
    cpu = torch.device("cpu")

    class OnCpus(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            options = dict(kwargs or {})
            if _asks_for_cuda(options.get("device")):
                options["device"] = cpu
            if "pin_memory" in options:
                options["pin_memory"] = False
            if getattr(func, "__name__", "") == "to":
                device = torch.device | str
                args = [cpu if isinstance(a, device) and _asks_for_cuda(a) else a for a in args]
            return func(*args, **options)

    OnCpus().__enter__()
    for kind in (torch.Tensor, torch.nn.Module):
        kind.cuda = _itself
    torch.Tensor.pin_memory = _itself
    plain = torch.Tensor.type

    def named(self: Any, *args: Any, **options: Any) -> Any:
        """Megatron asserts that gradients are of CUDA's types."""
        words = [a.replace("torch.cuda.", "torch.") if isinstance(a, str) else a for a in args]
        name = plain(self, *words, **options)
        if not isinstance(name, str):
            return name
        return name.replace("torch.cuda.", "torch.").replace("torch.", "torch.cuda.")

    torch.Tensor.type = named
    torch.utils.data.DataLoader.__init__ = _with(
        torch.utils.data.DataLoader.__init__,
        pin_memory=False,
        num_workers=0,
        persistent_workers=False,
    )


def _itself(self: Any, *_: Any, **__: Any) -> Any:
    return self


def _with(function: Callable[..., Any], **always: Any) -> Callable[..., Any]:
    """Return a function that is always given these; None takes one away."""

    def called(*args: Any, **options: Any) -> Any:
        given = {name: value for name, value in (options | always).items() if value is not None}
        return function(*args, **given)

    return called


def _nothing() -> Callable[..., None]:
    """Return a function that does nothing: torch's compiler wants each to be another."""
    return lambda *_, **__: None


class _Stream:
    """A stream or an event, on which all has been done already."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.cuda_stream = 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing()


def _devices(torch: Any) -> None:
    """Let there be devices that have nothing to do."""
    cuda = torch.cuda
    for name in ("Stream", "Event", "current_stream", "default_stream"):
        setattr(cuda, name, _Stream)
    for name in ("set_device", "synchronize", "empty_cache", "set_stream", "_lazy_init"):
        setattr(cuda, name, _nothing())
    for name in ("stream", "device"):
        setattr(cuda, name, lambda *_: nullcontext())
    for name in TYPES.split():
        setattr(cuda, name, getattr(torch, name))
    for name in ("memory_allocated", "memory_reserved"):
        setattr(cuda, name, lambda *_: _memory())
        setattr(cuda, f"max_{name}", lambda *_: _memory())
    cuda.is_available = cuda.is_initialized = lambda: True
    cuda.device_count, cuda.current_device = lambda: GPUS, lambda: 0
    properties = {"name": "CPU", "major": HOPPER, "minor": 0, "total_memory": 1 << 34}
    cuda.get_device_properties = lambda *_: SimpleNamespace(**properties, multi_processor_count=1)
    cuda.get_device_name = lambda *_: "CPU"
    cuda.get_device_capability = lambda *_: (HOPPER, 0)
    cuda.memory_stats = lambda *_: {}
    for module in (cuda, cuda.random):
        module.get_rng_state = lambda *_, **__: torch.get_rng_state()
        module.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
        module.manual_seed = lambda seed: torch.default_generator.manual_seed(int(seed))
        module.manual_seed_all = _nothing()
    cuda._lazy_call = lambda call: call()
    cuda.default_generators = [torch.default_generator] * GPUS


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _groups(distributed: Any) -> None:
    """Have all groups talk by gloo."""
    options = {"backend": "gloo", "pg_options": None, "device_id": None}
    for name in ("init_process_group", "new_group"):
        setattr(distributed, name, _with(getattr(distributed, name), **options))
    distributed.barrier = _with(distributed.barrier, device_ids=None)


def main(checkout: str, *words: str) -> None:
    """Train."""
    torch = prepare(checkout)
    for module in ("torch.overrides", "torch.utils.data", "torch.cuda.random"):
        importlib.import_module(module)
    _on_cpus(torch)
    _devices(torch)
    _groups(importlib.import_module("torch.distributed"))
    torch.accelerator.is_available = lambda: False
    sys.argv = ["pretrain_gpt.py", *words, *OPTIONS]
    runpy.run_module("pretrain_gpt", run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
