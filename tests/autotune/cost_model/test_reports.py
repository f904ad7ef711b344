"""What people who train models published, and the same predicted before any trial."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest

from autotune.calibration.calibration import general_knowledge
from autotune.cost_model import Estimate, Parameters
from autotune.cost_model.columns import Columns
from evaluators.adapter.catalog import load_adapter
from search_spaces.catalog import load_machine, load_model
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.program import USUAL_STATES, StateWidths, Tuning
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.autotune.cost_model.examples import cost


@dataclass(frozen=True, kw_only=True)
class Report:
    """One published step.

    Attributes:
        layout: what differs from one GPU's share of everything.
        batch: samples of a step, all replicas together.
    """

    source: str
    model: Transformer
    machine: Machine
    gpus: int
    batch: int
    layout: dict[str, Any]
    seconds: float
    tuning: Tuning = "usual"
    states: StateWidths = USUAL_STATES

    @property
    def strategy(self) -> Strategy:
        nodes = math.ceil(self.gpus / self.machine.gpus_per_node)
        plain: dict[str, Any] = {
            "tensor_parallel": 1,
            "pipeline_parallel": 1,
            "context_parallel": 1,
            "micro_batch_size": 1,
            "zero_stage": 1,
        }
        layout = plain | self.layout
        cut = layout["tensor_parallel"] * layout["pipeline_parallel"] * layout["context_parallel"]
        replicas = self.gpus // cut
        steps = self.batch // (replicas * layout["micro_batch_size"])
        return Strategy(num_nodes=nodes, gradient_accumulation_steps=steps, **layout)

    @property
    def estimate(self) -> Estimate:
        return cost(
            self.strategy,
            transformer=self.model,
            machine=self.machine,
            parameters=Parameters.default(self.machine, self.tuning, self.states),
        )

    @property
    def predicted_s(self) -> float:
        return float(self.estimate.iteration_time_s[0])


LUMI_175B = Transformer.gpt(
    "gpt-175b-lumi", num_layers=70, hidden_size=14336, num_attention_heads=112, vocab_size=50257
)
LLAMA_70B = replace(load_model("llama-3-70b"), seq_length=8192)
LLAMA_8B = replace(load_model("llama-3-8b"), seq_length=8192)


def of_lumi(gpus: int, seconds: float) -> Report:
    return Report(
        source=f"LUMI, {gpus} GCDs (spyysalo/lumi-llm-scaling@7314958)",
        model=LUMI_175B,
        machine=load_machine("lumi-g"),
        gpus=gpus,
        batch=1024,
        layout={
            "tensor_parallel": 8,
            "pipeline_parallel": 8,
            "micro_batch_size": 2,
            "flash_attention": False,
        },
        seconds=seconds,
        states=load_adapter("megatron-deepspeed").states,
    )


def of_dgx_cloud(model: Transformer, gpus: int, seconds: float, **layout: Any) -> Report:
    none = {"activation_checkpointing": "none"}
    return Report(
        source=f"DGX Cloud 24.11.1, {model.name}, {gpus} H100 (NVIDIA/dgxc-benchmarking@35a9aec)",
        model=model,
        machine=load_machine("dgx-h100"),
        gpus=gpus,
        batch=2 * gpus if model is LLAMA_70B else 16 * gpus,
        layout=none | layout,
        seconds=seconds,
        tuning="vendor",
    )


def of_trl(model: str, seconds: float, **states: float) -> Report:
    """A sequence of a million tokens on 8 H100, with a loss in chunks and offloaded inputs; 30B and
    32B with offloaded states, and 32B with MLPs in parts of 16,384 tokens (the PRs' levers)."""
    own: dict[str, float] = {
        "loss_tokens": 1024,
        "offloaded_inputs": 1,
        "gated_activation_bytes": 8,
    }
    return Report(
        source=f"TRL, {model}, 1,048,576 tokens (huggingface/trl#6845, #6846)",
        model=replace(load_model(model), seq_length=1_048_576),
        machine=load_machine("dgx-h100"),
        gpus=8,
        batch=1,
        layout={"context_parallel": 8, "zero_stage": 3},
        seconds=seconds,
        tuning="plain",
        states=StateWidths(vendor_attention=1, **own, **states),
    )


def of_torchtitan(gpus: int, batch: int, seconds: float, **layout: Any) -> Report:
    adapter = load_adapter("torchtitan-0.2")
    return Report(
        source=f"torchtitan, Llama 3 8B, {gpus} H100 (llama3_h100_202412, #929)",
        model=LLAMA_8B,
        machine=load_machine("dgx-h100"),
        gpus=gpus,
        batch=batch,
        layout={"zero_stage": 3, "activation_checkpointing": "selective"} | layout,
        seconds=seconds,
        tuning=adapter.tuning,
        states=adapter.states,
    )


EXPERTS_ONE_BY_ONE = Report(
    source="Qwen3-30B-A3B, DeepSpeed ZeRO-3 on 16 A800 (QwenLM/Qwen3#1278)",
    model=replace(load_model("qwen3-30b-a3b"), seq_length=8192),
    machine=load_machine("dgx-a100"),
    gpus=16,
    batch=16,
    layout={"zero_stage": 3},
    seconds=91.2,
)


def of_bridge_8b() -> Report:
    adapter = load_adapter("megatron-bridge")
    return Report(
        source="Qwen3-8B, 16 H100 (NVIDIA-NeMo/Megatron-Bridge docs/model-verification)",
        model=replace(load_model("qwen3-8b"), seq_length=4096),
        machine=load_machine("dgx-h100"),
        gpus=16,
        batch=1024,
        layout={"activation_checkpointing": "none"},
        seconds=25.07,
        tuning=adapter.tuning,
        states=adapter.states,
    )


def of_zero_2_experts() -> Report:
    return replace(EXPERTS_ONE_BY_ONE, layout={"zero_stage": 2})


BLOCK = Report(
    source="Llama 3 8B, 5 of 32 layers recomputed, 8 H100 (Megatron-Bridge@067f987, line 589)",
    model=LLAMA_8B,
    machine=load_machine("dgx-h100"),
    gpus=8,
    batch=128,
    layout={"zero_stage": 3, "precision": "fp8_current"},
    seconds=9.07,
    tuning="vendor",
    states=StateWidths(gradient_bytes=2, recomputed_layers=5),
)

LAYOUT_70B = {
    "tensor_parallel": 4,
    "pipeline_parallel": 4,
    "context_parallel": 2,
    "virtual_stages": 5,
    "sequence_parallel": True,
}

STEPS = [
    (of_lumi(128, 346.67), 0.06),
    (of_lumi(256, 180.82), 0.06),
    (of_lumi(512, 97.53), 0.06),
    (of_lumi(1024, 55.18), 0.06),
    (of_lumi(2048, 36.2), 0.06),
    (of_dgx_cloud(LLAMA_70B, 64, 14.72, **LAYOUT_70B), 0.05),
    (of_dgx_cloud(LLAMA_70B, 2048, 14.98, **LAYOUT_70B), 0.05),
    (of_dgx_cloud(LLAMA_8B, 128, 13.1, context_parallel=2), 0.1),
    (of_trl("qwen3-0.6b", 137), 0.15),
    (of_trl("qwen3-8b", 372), 0.15),
    (of_trl("qwen3-30b-a3b", 483), 0.15),
    (of_trl("qwen3-32b", 1295), 0.15),
    (of_torchtitan(8, 8, 1.26), 0.1),
    (of_torchtitan(128, 256, 2.515, micro_batch_size=2), 0.1),
    (EXPERTS_ONE_BY_ONE, 0.3),
    (of_bridge_8b(), 0.1),
    (BLOCK, 0.15),
]


@pytest.mark.parametrize(("report", "tolerance"), STEPS, ids=lambda each: str(each)[:60])
def test_step_times(report: Report, tolerance: float) -> None:
    assert report.predicted_s == pytest.approx(report.seconds, rel=tolerance)


WEAK_SCALING = [
    (LLAMA_70B, LAYOUT_70B, (64, 14.72), (2048, 14.98)),
    (LLAMA_8B, {"context_parallel": 2}, (16, 13.0), (128, 13.1)),
]


@pytest.mark.parametrize(("model", "layout", "few", "many"), WEAK_SCALING)
def test_loss_for_each_doubling_of_replicas(
    model: Transformer, layout: dict[str, Any], few: tuple[int, float], many: tuple[int, float]
) -> None:
    """Within a point of what NVIDIA measured on up to 2,048 GPUs."""
    small, large = (of_dgx_cloud(model, *each, **layout) for each in (few, many))
    doublings = math.log2(large.gpus / small.gpus)
    measured = (large.seconds / small.seconds) ** (1.0 / doublings) - 1.0
    predicted = (large.predicted_s / small.predicted_s) ** (1.0 / doublings) - 1.0
    assert predicted == pytest.approx(measured, abs=0.01)


ALLOCATOR = [
    (of_lumi(128, 346.67), 47.66, 57.109),
    (of_lumi(256, 180.82), 39.649, 49.088),
    (of_lumi(512, 97.53), 35.64, 44.859),
    (of_lumi(1024, 55.18), 33.639, 42.945),
    (of_lumi(2048, 36.2), 32.634, 41.92),
]


@pytest.mark.parametrize(("report", "allocated", "reserved"), ALLOCATOR, ids=lambda x: str(x)[:60])
def test_what_the_allocator_reports(report: Report, allocated: float, reserved: float) -> None:
    """GiB of the first stage, which is the fullest."""
    assert float(report.estimate.allocated_gib[0]) == pytest.approx(allocated, rel=0.05)
    assert float(report.estimate.reserved_gib[0]) == pytest.approx(reserved, rel=0.1)


RAN_OR_NOT = [
    (of_bridge_8b(), True),
    (of_torchtitan(8, 16, 2.457, micro_batch_size=2), True),
    (of_zero_2_experts(), False),
]


@pytest.mark.parametrize(("report", "ran"), RAN_OR_NOT, ids=lambda each: str(each)[:60])
def test_what_ran_is_not_ruled_out(report: Report, ran: bool) -> None:
    known = general_knowledge(report.machine, report.tuning, report.states)
    lattice = Lattice.of([report.strategy], gpus_per_node=report.machine.gpus_per_node)
    [probability] = known.fit_probability(Columns.of(report.model, lattice))
    assert probability > 0.4 if ran else probability < 0.1


GB = 2**30 / 1e9

PEAKS = [
    (of_torchtitan(8, 8, 1.26), 47.65, 0.1),
    (of_torchtitan(8, 16, 2.457, micro_batch_size=2), 77.0, 0.1),
    (of_torchtitan(128, 256, 2.515, micro_batch_size=2), 62.0, 0.1),
    (of_trl("qwen3-8b", 372), 56.2 / GB, 0.25),
    (of_trl("qwen3-30b-a3b", 483, offloaded_states=1), 46.0 / GB, 0.1),
    (of_trl("qwen3-32b", 1295, offloaded_states=1, mlp_tokens=16384), 60.8 / GB, 0.1),
]


@pytest.mark.parametrize(("report", "gib", "tolerance"), PEAKS, ids=lambda each: str(each)[:60])
def test_peaks_of_memory(report: Report, gib: float, tolerance: float) -> None:
    assert float(report.estimate.memory_gib[0]) == pytest.approx(gib, rel=tolerance)
