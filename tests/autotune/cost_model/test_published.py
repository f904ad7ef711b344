"""Korthikanti et al. 2022, 'Reducing Activation Recomputation in Large Transformer Models'
(arXiv 2205.05198): its memory and its iteration times of Megatron-LM on A100s."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from autotune.cost_model import Estimate, Parameters
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.autotune.cost_model.examples import DGX_A100, cost, paper_bytes


@dataclass(frozen=True, kw_only=True)
class PublishedModel:
    """One model of table 3, and what the paper prints of it.

    Attributes:
        scores: `5 a s / h`, attention scores in `s b h` (section 4.1 gives 80 and 64).
        states_gib, plain_gib, reduced_gib: figure 1, of the first stage: parameters and optimizer;
            activations with TP alone; with sequence parallelism and selective recomputation.
        full_s, selective_s: table 5, seconds of one iteration.
        mfu: table 5, percent, of the latter.
    """

    name: str
    num_layers: int
    hidden_size: int
    heads: int
    stages: int
    virtual_stages: int
    micro_batch: int
    batch: int
    scores: float
    states_gib: float
    plain_gib: float
    reduced_gib: float
    full_s: float
    selective_s: float
    mfu: float

    @property
    def transformer(self) -> Transformer:
        return Transformer.gpt(
            self.name,
            num_layers=self.num_layers,
            hidden_size=self.hidden_size,
            num_attention_heads=self.heads,
        )

    def estimate(
        self, checkpointing: str, *, sequence_parallel: bool, parameters: Parameters | None = None
    ) -> Estimate:
        """TP 8 on a node for each stage, no replicas, no ZeRO, scores stored."""
        layout = Strategy(
            tensor_parallel=8,
            pipeline_parallel=self.stages,
            virtual_stages=self.virtual_stages,
            micro_batch_size=self.micro_batch,
            gradient_accumulation_steps=self.batch // self.micro_batch,
            zero_stage=0,
            num_nodes=self.stages,
            activation_checkpointing=checkpointing,  # type: ignore[arg-type]
            sequence_parallel=sequence_parallel,
            flash_attention=False,
            precision="fp16",
        )
        return cost(layout, transformer=self.transformer, machine=DGX_A100, parameters=parameters)


# fmt: off
ROWS = [
    PublishedModel(name="22B", num_layers=48, hidden_size=6144, heads=64,
        stages=1, virtual_stages=1, micro_batch=4, batch=4, scores=106.67,
        states_gib=45.56, plain_gib=59.25, reduced_gib=9.56,
        full_s=1.42, selective_s=1.10, mfu=41.5),
    PublishedModel(name="175B", num_layers=96, hidden_size=12288, heads=96,
        stages=8, virtual_stages=3, micro_batch=1, batch=64, scores=80,
        states_gib=45.56, plain_gib=66.84, reduced_gib=12.35,
        full_s=18.13, selective_s=13.75, mfu=51.4),
    PublishedModel(name="530B", num_layers=105, hidden_size=20480, heads=128,
        stages=35, virtual_stages=3, micro_batch=1, batch=280, scores=64,
        states_gib=31.64, plain_gib=114.02, reduced_gib=23.08,
        full_s=49.05, selective_s=37.83, mfu=56.0),
    PublishedModel(name="1T", num_layers=128, hidden_size=25600, heads=160,
        stages=64, virtual_stages=1, micro_batch=1, batch=512, scores=64,
        states_gib=32.96, plain_gib=131.25, reduced_gib=26.56,
        full_s=94.42, selective_s=71.49, mfu=56.3),
]
# fmt: on

each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def activations_gib(row: PublishedModel, checkpointing: str, *, sequence_parallel: bool) -> float:
    estimated = row.estimate(
        checkpointing, sequence_parallel=sequence_parallel, parameters=paper_bytes(DGX_A100)
    )
    return float(estimated.memory_parts_gib["activations"][0])


@each_row
@pytest.mark.parametrize(
    ("checkpointing", "sequence_parallel", "linear", "scores"),
    [
        ("none", False, 10 + 24 / 8, 1 / 8),
        ("none", True, 34 / 8, 1 / 8),
        ("selective", False, 10 + 24 / 8, 0),
        ("selective", True, 34 / 8, 0),
        ("full", False, 2, 0),
        ("full", True, 2 / 8, 0),
    ],
)
def test_table_2(
    row: PublishedModel, checkpointing: str, sequence_parallel: bool, linear: float, scores: float
) -> None:
    """Activations of a layer in `s b h`, over the layers of a stage and what is in flight."""
    in_flight = float(row.stages)
    if row.virtual_stages > 1:
        in_flight *= 1 + (row.stages - 1) / (row.stages * row.virtual_stages)
    layers = row.num_layers / row.stages * in_flight
    hidden = 2048 * row.micro_batch * row.hidden_size
    expected = layers * hidden * (linear + scores * row.scores) / 2**30
    size = activations_gib(row, checkpointing, sequence_parallel=sequence_parallel)
    assert size == pytest.approx(expected, rel=1e-3)


@each_row
def test_figure_1(row: PublishedModel) -> None:
    """GiB of the first stage. Its parameters and optimizer take 18 bytes for each parameter of the
    layers; the embeddings, words over TP and positions whole, are left out there."""
    plain = activations_gib(row, "none", sequence_parallel=False)
    reduced = activations_gib(row, "selective", sequence_parallel=True)
    assert plain == pytest.approx(row.plain_gib, rel=1e-3)
    assert reduced == pytest.approx(row.reduced_gib, rel=1e-3)
    estimated = row.estimate("none", sequence_parallel=False).memory_parts_gib
    states = sum(float(estimated[name][0]) for name in ("parameters", "gradients", "optimizer"))
    embeddings = 18 * (51200 / 8 + 2048) * row.hidden_size / 2**30
    assert states - embeddings == pytest.approx(row.states_gib, rel=0.005)


@each_row
def test_five_times_less(row: PublishedModel) -> None:
    """Section 5: both techniques together leave about a fifth of the activations."""
    plain = activations_gib(row, "none", sequence_parallel=False)
    reduced = activations_gib(row, "selective", sequence_parallel=True)
    assert 0.15 < reduced / plain < 0.21


@each_row
def test_iteration_times(row: PublishedModel) -> None:
    """Each of table 5 within 15 percent, and what the paper's techniques gain within 8."""
    full = row.estimate("full", sequence_parallel=False).iteration_time_s[0]
    selective = row.estimate("selective", sequence_parallel=True).iteration_time_s[0]
    assert full == pytest.approx(row.full_s, rel=0.15)
    assert selective == pytest.approx(row.selective_s, rel=0.15)
    assert full / selective == pytest.approx(row.full_s / row.selective_s, rel=0.08)


@each_row
def test_it_fits_where_it_ran(row: PublishedModel) -> None:
    """On 80 GiB; what neither recomputes nor cuts the sequence does not, as the paper says."""
    assert row.estimate("full", sequence_parallel=False).fits[0]
    assert row.estimate("selective", sequence_parallel=True).fits[0]
    assert not row.estimate("none", sequence_parallel=False).fits[0]


@each_row
def test_model_flops_utilisation(row: PublishedModel) -> None:
    flops = row.transformer.model_flops(row.batch)
    peak = 312e12 * 8 * row.stages
    assert 100 * flops / (row.selective_s * peak) == pytest.approx(row.mfu, rel=0.01)
