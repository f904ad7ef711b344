"""What the Frontier study printed: its memory table and its three settings."""

from __future__ import annotations

import pytest

from autotune.cost_model import state_bytes_per_parameter
from search_spaces.catalog import load_model
from search_spaces.strategy import Strategy
from tests.autotune.cost_model.examples import FRONTIER, cost

GIGABYTE = 1e9


@pytest.mark.parametrize(
    ("parameters", "printed"),
    [(22e9, (132, 88, 176)), (175e9, (1050, 700, 1400)), (1e12, (6000, 4000, 8000))],
)
def test_memory_table(parameters: float, printed: tuple[float, float, float]) -> None:
    """GB of parameters, gradients and optimizer states before anything is divided."""
    per_parameter = state_bytes_per_parameter()
    parts = (per_parameter.parameters, per_parameter.gradients, per_parameter.optimizer)
    assert tuple(float(part) * parameters / GIGABYTE for part in parts) == pytest.approx(printed)
    assert float(per_parameter.total) == 18


@pytest.mark.parametrize(
    ("model", "tensor", "pipeline", "batch", "nodes", "printed_percent"),
    [
        ("gpt-22b", 1, 8, 640, 2, 38.38),
        ("gpt-175b", 4, 16, 640, 16, 36.14),
        ("gpt-1t", 8, 64, 1600, 128, 31.96),
    ],
)
def test_three_settings(
    model: str, tensor: int, pipeline: int, batch: int, nodes: int, printed_percent: float
) -> None:
    """Percent of the peak, recomputation counted, within a quarter; and each fits in memory."""
    transformer = load_model(model)
    replicas = nodes * FRONTIER.gpus_per_node // (tensor * pipeline)
    setting = Strategy(
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        micro_batch_size=1,
        gradient_accumulation_steps=batch // replicas,
        zero_stage=1,
        num_nodes=nodes,
        activation_checkpointing="full",
        flash_attention=True,
        precision="fp16",
    )
    assert setting.global_batch_size(FRONTIER.gpus_per_node) == batch
    predicted = cost(setting, transformer=transformer)
    assert FRONTIER.peak_tflops is not None
    peak = FRONTIER.peak_tflops * 1e12 * nodes * FRONTIER.gpus_per_node
    flops = transformer.hardware_flops(batch, "full")
    percent = 100 * flops / (float(predicted.iteration_time_s[0]) * peak)
    assert percent == pytest.approx(printed_percent, rel=0.25)
    assert predicted.fits[0]
