"""The ready adapters of trainers on Megatron Core and of Megatron-DeepSpeed: what they write comes
back as the same strategy, by names known from each trainer's sources; what they read are lines as
these sources print them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.catalog import load_adapter
from evaluators.adapter.figures import StartFigures
from evaluators.adapter.log import AdapterLog
from evaluators.adapter.names import strategy_names
from evaluators.adapter.readers.rows import name_of
from evaluators.adapter.rendering import StartPlan, TrainerStart, start_of
from search_spaces.catalog import load_machine, load_model
from search_spaces.strategy import Strategy
from tests.evaluators.adapter.random_strategies import random_strategies
from tests.evaluators.frameworks.export_readers import strategy_of_nemo
from tests.evaluators.frameworks.strategies import BASE

FRONTIER = load_machine("frontier")
LLAMA = load_model("llama-3-70b")


def _start(adapter: Adapter, strategy: Strategy) -> TrainerStart:
    plan = StartPlan(transformer=LLAMA, machine=FRONTIER, strategy=strategy, iterations=8)
    return start_of(adapter, plan)


def _figures(adapter: Adapter, text: str) -> StartFigures:
    log = AdapterLog(adapter.read, [strategy_names(LLAMA, FRONTIER, BASE)])
    for number, line in enumerate(text.splitlines()):
        log.take(f"[start 1 rank 0 {number:.6f}s] {line}")
    return log.starts[0].figures


def _of_bridge(start: TrainerStart, num_nodes: int) -> Strategy:
    """Megatron-Bridge 0.7.0, commit 067f987d: scripts/training/run_recipe.py, whose words are
    KEY=VALUE for the fields of `ConfigContainer`, in Hydra's grammar."""
    given = [word.partition("=") for word in start.words if "=" in word]
    key: Mapping[str, Any] = {name: yaml.safe_load(value) for name, _, value in given}
    zero = int(key["ddp.use_distributed_optimizer"])
    assert key["optimizer.use_distributed_optimizer"] == key["ddp.use_distributed_optimizer"]
    if key.get("ddp.use_megatron_fsdp"):
        zero = {"optim_grads": 2, "optim_grads_params": 3}[
            key["ddp.data_parallel_sharding_strategy"]
        ]
        assert start.variables["CUDA_DEVICE_MAX_CONNECTIONS"] != "1"  # it refuses that
    tensor, pipeline = (key[f"model.{name}_model_parallel_size"] for name in ("tensor", "pipeline"))
    replicas = num_nodes * FRONTIER.gpus_per_node // (tensor * pipeline)
    return Strategy(
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        micro_batch_size=key["train.micro_batch_size"],
        gradient_accumulation_steps=key["train.global_batch_size"]
        // (key["train.micro_batch_size"] * replicas),
        zero_stage=zero,
        num_nodes=num_nodes,
        activation_checkpointing=key["model.recompute_granularity"] or "none",
        sequence_parallel=key["model.sequence_parallel"],
        virtual_stages=key["model.virtual_pipeline_model_parallel_size"] or 1,
        precision=key["mixed_precision"].removesuffix("_mixed"),
    )


def _of_nemo(start: TrainerStart, num_nodes: int) -> Strategy:
    """NeMo's megatron_gpt_pretraining.py with megatron_gpt_config.yaml of September 2025."""
    assert num_nodes == yaml.safe_load(start.files["nemo.yaml"])["trainer"]["num_nodes"]
    return strategy_of_nemo(start.files["nemo.yaml"])


@pytest.mark.parametrize(("name", "back"), [("megatron-bridge", _of_bridge), ("nemo", _of_nemo)])
def test_strategies_come_back(name: str, back: Callable[[TrainerStart, int], Strategy]) -> None:
    adapter = load_adapter(name)
    for asked in random_strategies(adapter, LLAMA, FRONTIER, 50):
        assert back(_start(adapter, asked), asked.num_nodes) == asked


def test_bridges_log() -> None:
    # src/megatron/bridge/training/utils/train_utils.py of 067f987d: `training_log`, with memory
    # in units of 10^9 bytes (`report_memory`).
    adapter = load_adapter("megatron-bridge")
    figures = _figures(adapter, """\
Step Time : 2.44s GPU utilization: 412.0MODEL_TFLOP/s/GPU
 [2026-08-22 10:00:01] iteration        1/       8 | consumed samples:           32 | \
elapsed time per iteration (ms): 2438.1 | learning rate: 3.000000E-04 | \
global batch size:    32 | lm loss: 1.187301E+01 | loss scale: 1.0 | grad norm: 5.120 | \
number of skipped iterations:   0 | number of nan iterations:   0 |
[Rank 0] (after 1 iterations) memory (GB) | mem-allocated-gigabytes: 20.1 | \
mem-max-allocated-gigabytes: 40.2 | mem-max-reserved-gigabytes: 42.949672 | \
mem-alloc-retires: 0
""")  # fmt: skip
    assert [(i.step, i.time_s, i.loss) for i in figures.iterations] == [(1, 2.4381, 11.87301)]
    assert figures.ranks[0].peak_memory_gib == pytest.approx(40)


def test_nemos_event_files() -> None:
    # NeMo's logger of TensorBoard has a tag for each figure; the reader gives it as a name.
    adapter = load_adapter("nemo")
    figures = StartFigures(adapter.read, strategy_names(LLAMA, FRONTIER, BASE))
    for tag, value in {"train_step_timing in s": 3.25, "reduced_train_loss": 10.5}.items():
        figures.take(0, {"step": 7, name_of(tag): value}, rank=0)
    assert [(i.step, i.time_s, i.loss) for i in figures.iterations] == [(7, 3.25, 10.5)]
