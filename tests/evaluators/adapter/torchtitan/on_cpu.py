"""torchtitan 0.2 on CPUs: `python on_cpu.py --job.config_file FILE …`, where torchtitan is.

All of torchtitan's own training runs, from its parser to its last line. What it asks of a GPU, and
a CPU has not, is put in its place here, and nothing else:

- its device is the CPU, the same one for all ranks (`LOCAL_RANK` is 0), with one thread for each;
- the device's name and capacity; the memory that is used is the process's peak resident size;
- its barrier names no device, and FSDP sums gradients instead of scaling them as they are summed:
  gloo, which stands for NCCL, has neither.
"""

import os
import resource
import runpy
from types import SimpleNamespace
from typing import Any

os.environ["LOCAL_RANK"] = "0"

import torch
import torch.distributed
from torch.distributed.fsdp import FSDPModule

torch.set_num_threads(1)
utils: Any = torch._utils
utils._get_available_device_type = lambda: "cpu"

PAGES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
barrier = torch.distributed.barrier
set_factor = FSDPModule.set_gradient_divide_factor


def memory_stats(_device: Any = None) -> dict[str, int]:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"active_bytes.all.peak": peak, "reserved_bytes.all.peak": peak}


def barrier_anywhere(*arguments: Any, **named: Any) -> Any:
    named.pop("device_ids", None)
    return barrier(*arguments, **named)


def sum_and_divide(module: FSDPModule, factor: float) -> None:
    module.set_force_sum_reduction_for_comms(True)
    set_factor(module, factor)


cpu: Any = torch.cpu
cpu.get_device_name = lambda *_: "CPU"
cpu.get_device_properties = lambda *_: SimpleNamespace(total_memory=PAGES)
cpu.memory_stats = memory_stats
cpu.reset_peak_memory_stats = cpu.empty_cache = lambda *_: None
distributed: Any = torch.distributed
distributed.barrier = barrier_anywhere
sharded: Any = FSDPModule
sharded.set_gradient_divide_factor = sum_and_divide

if __name__ == "__main__":
    runpy.run_module("torchtitan.train", run_name="__main__", alter_sys=True)
