"""Predicted and printed percent of peak of the Frontier study's three settings, and their memory.

    python tests/benchmarks/cost_model_study.py

Hardware FLOPs, recomputation counted, over the 191.5 TFLOP/s of a GCD. Sequence 2048, fp16,
ZeRO-1, FlashAttention 2, full activation checkpointing (Dash et al. 2023, arXiv 2312.12705).
"""

from __future__ import annotations

from autotune.cost_model import estimate
from search_spaces.catalog import load_machine, load_model
from search_spaces.lattice import Lattice
from search_spaces.strategy import Strategy

TERA = 1e12

# model, TP, PP, global batch in samples, nodes, printed percent of peak
SETTINGS = (
    ("gpt-22b", 1, 8, 640, 2, 38.38),
    ("gpt-175b", 4, 16, 640, 16, 36.14),
    ("gpt-1t", 8, 64, 1600, 128, 31.96),
)


def main() -> None:
    machine = load_machine("frontier")
    peak = TERA * (machine.peak_tflops or 0.0)
    print(f"{'model':10}{'predicted %':>12}{'printed %':>11}{'error':>8}{'GiB':>7}{'limit':>7}")
    for name, tensor, pipeline, batch, nodes, printed in SETTINGS:
        transformer = load_model(name)
        gpus = nodes * machine.gpus_per_node
        strategy = Strategy(
            tensor_parallel=tensor,
            pipeline_parallel=pipeline,
            micro_batch_size=1,
            gradient_accumulation_steps=batch * tensor * pipeline // gpus,
            zero_stage=1,
            num_nodes=nodes,
            precision="fp16",
        )
        lattice = Lattice.of([strategy], gpus_per_node=machine.gpus_per_node)
        cost = estimate(transformer, machine, lattice)
        flops = transformer.hardware_flops(batch, "full")
        percent = 100 * flops / (float(cost.iteration_time_s[0]) * gpus * peak)
        error = f"{percent / printed - 1:+.1%}"
        memory, limit = float(cost.memory_gib[0]), cost.memory_limit_gib
        print(f"{name:10}{percent:12.2f}{printed:11.2f}{error:>8}{memory:7.1f}{limit:7.1f}")


if __name__ == "__main__":
    main()
