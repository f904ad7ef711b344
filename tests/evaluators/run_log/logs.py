"""Logs as trainers write them, with the times and settings that a test gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

LLAMA = {
    "num_layers": 32,
    "hidden_size": 4096,
    "ffn_hidden_size": 14336,
    "num_attention_heads": 32,
    "num_query_groups": 8,
    "seq_length": 8192,
    "padded_vocab_size": 128256,
    "swiglu": True,
}
LAYOUT = {
    "world_size": 64,
    "data_parallel_size": 32,
    "tensor_model_parallel_size": 2,
    "pipeline_model_parallel_size": 1,
    "context_parallel_size": 1,
    "micro_batch_size": 1,
    "global_batch_size": 512,
    "bf16": True,
    "fp16": False,
    "use_distributed_optimizer": True,
    "sequence_parallel": True,
    "recompute_granularity": None,
    "overlap_grad_reduce": True,
    "overlap_param_gather": True,
}
GPU = "GPU 0: NVIDIA H100 80GB HBM3"


def megatron(
    times_s: Iterable[float],
    *,
    changed: Mapping[str, object] = {},
    lines: Sequence[str] = (),
    between: Mapping[int, Sequence[str]] = {},
    tflops: float | None = None,
) -> str:
    """Return a log of Megatron-LM.

    Args:
        changed: arguments that differ; None leaves one out.
        lines: further lines at the beginning.
        between: lines before the report with this number.
    """
    arguments = {**LLAMA, **LAYOUT, **changed}
    text = [*lines, GPU, "------------------------ arguments ------------------------"]
    text += [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in arguments.items()]
    text += ["-------------------- end of arguments ---------------------"]
    batch = arguments["global_batch_size"]
    for number, time_s in enumerate(times_s, start=1):
        text += between.get(number, ())
        printed = f" throughput per GPU (TFLOP/s/GPU): {tflops:.1f} |" if tflops else ""
        text.append(
            f" iteration {number:8d}/    5000 | consumed samples: {number:12d} | elapsed time per "
            f"iteration (ms): {1000 * time_s:.1f} |{printed} learning rate: 3.0E-04 | global batch "
            f"size: {batch:5} | lm loss: 2.0E+00 | number of nan iterations:   0 |"
        )
    return "\n".join(text) + "\n"


def torchtitan(rates: Iterable[float], *, lines: Sequence[str] = (), ranks: int = 1) -> str:
    """Return a log of torchtitan for Llama 3 8B on 8 H100; `rates` in tokens/s of a GPU."""
    head = "[titan] 2026-05-03 08:02:48,628 - root - INFO - "
    text = [
        f"{head}Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, "
        "tp=1, ep=1, etp=1",
        f"{head}CUDA capacity: NVIDIA H100 80GB HBM3 with 79.10GiB memory",
        f"{head}Model llama3 8B size: 8,030,261,248 total parameters",
        f"{head}Trainer is initialized with local batch size 1, global batch size 8, gradient "
        "accumulation steps 1, sequence length 8192, total steps 1000 (warmup 200)",
        *lines,
    ]
    for number, rate in enumerate(rates, start=1):
        for rank in range(ranks):
            text.append(
                f"[rank{rank}]:{head}\x1b[31mstep: {10 * number:2}  \x1b[32mloss:  7.0  "
                f"\x1b[33mmemory: 47.65GiB(60.24%)  \x1b[34mtps: {rate:,.0f}  \x1b[36mtflops: "
                f"375.10  \x1b[35mmfu: 37.93%\x1b[39m"
            )
    return "\n".join(text) + "\n"


def bundled(times_s: Iterable[float], *, lines: Sequence[str] = ()) -> str:
    """Return a log of the bundled trainer."""
    text = [*lines]
    for number, time_s in enumerate(times_s, start=1):
        text.append(f"GAS 8, iteration {number} | {1000 * time_s:.1f} ms | loss 7.1000000")
    return "\n".join(text) + "\n"


def written(folder: Path, text: str, name: str = "run.log") -> Path:
    path = folder / name
    path.write_text(text)
    return path
