"""What the Frontier study printed (Dash et al. 2023, arXiv 2312.12705), and the same predicted.

Hardware FLOPs, recomputation counted, over the 191.5 TFLOP/s of a GCD. Sequence 2048, fp16, ZeRO-1,
FlashAttention 2, full activation checkpointing, MBS 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.cost_model import Estimate, estimate
from autotune.cost_model.energy import gpu_energy_joule
from search_spaces.catalog import load_machine, load_model
from search_spaces.lattice import Lattice
from search_spaces.strategy import Strategy

MACHINE = load_machine("frontier")
TERA = 1e12


@dataclass(frozen=True)
class Setting:
    """One run.

    Attributes:
        batch: samples of a step, all replicas together.
    """

    model: str
    tensor_parallel: int
    pipeline_parallel: int
    batch: int
    num_nodes: int

    @property
    def strategy(self) -> Strategy:
        replica = self.tensor_parallel * self.pipeline_parallel
        return Strategy(
            tensor_parallel=self.tensor_parallel,
            pipeline_parallel=self.pipeline_parallel,
            micro_batch_size=1,
            gradient_accumulation_steps=self.batch * replica // self.gpus,
            zero_stage=1,
            num_nodes=self.num_nodes,
            activation_checkpointing="full",
            flash_attention=True,
            precision="fp16",
        )

    @property
    def gpus(self) -> int:
        return self.num_nodes * MACHINE.gpus_per_node

    def estimate(self) -> Estimate:
        lattice = Lattice.of([self.strategy], gpus_per_node=MACHINE.gpus_per_node)
        return estimate(load_model(self.model), MACHINE, lattice)

    @property
    def seconds(self) -> float:
        return float(self.estimate().iteration_time_s[0])

    @property
    def percent_of_peak(self) -> float:
        flops = load_model(self.model).hardware_flops(self.batch, "full")
        assert MACHINE.peak_tflops is not None
        return 100 * flops / (self.seconds * self.gpus * MACHINE.peak_tflops * TERA)

    @property
    def gpu_joules_per_token(self) -> float:
        """What the GPUs draw, hosts apart."""
        joule = gpu_energy_joule(
            MACHINE,
            num_nodes=np.array([self.num_nodes]),
            time_parts_s=self.estimate().time_parts_s,
        )
        assert joule is not None
        return float(joule[0]) / (self.batch * load_model(self.model).seq_length)

    @property
    def samples_per_gpu_second(self) -> float:
        return self.batch / (self.seconds * self.gpus)


@dataclass(frozen=True)
class Scaling:
    """Two runs of one layout; the efficiency is the larger one's rate for each GPU over the
    smaller one's. LUMI's strong scaling on the same GPU contradicts what is not explained."""

    name: str
    small: Setting
    large: Setting
    printed: float
    explained: bool = True

    @property
    def percent(self) -> float:
        return 100 * self.large.samples_per_gpu_second / self.small.samples_per_gpu_second


SETTINGS = (
    (Setting("gpt-22b", 1, 8, 640, 2), 38.38),
    (Setting("gpt-175b", 4, 16, 640, 16), 36.14),
    (Setting("gpt-1t", 8, 64, 1600, 128), 31.96),
)
"""With the printed percent of peak."""

ENERGIES = (
    (SETTINGS[0][0], 284e9 / (20 * 22e9)),
    (SETTINGS[1][0], 17.65e12 / (20 * 175e9)),
    (SETTINGS[2][0], 662e12 / (20 * 1e12)),
)
"""With the joules for each of 20 tokens a parameter, of which the study prints the sums: 284 GJ,
17.65 TJ and 662 TJ. At its own rates they are 256, 243 and 248 W for each GCD, the cap of which is
250: the GPUs alone, neither hosts nor cooling."""

SCALINGS = (
    Scaling(
        "175B strong, 128 to 1024 GPUs, batch 8000",
        Setting("gpt-175b", 4, 16, 8000, 16),
        Setting("gpt-175b", 4, 16, 8000, 128),
        89.93,
        explained=False,
    ),
    Scaling(
        "1T strong, 1024 to 3072 GPUs, batch 8016",
        Setting("gpt-1t", 8, 64, 8016, 128),
        Setting("gpt-1t", 8, 64, 8016, 384),
        87.05,
        explained=False,
    ),
    Scaling(
        "175B weak, 128 to 1024 GPUs, 640 a replica",
        Setting("gpt-175b", 4, 16, 1280, 16),
        Setting("gpt-175b", 4, 16, 10240, 128),
        100.0,
    ),
    Scaling(
        "1T weak, 1024 to 3072 GPUs, 1600 a replica",
        Setting("gpt-1t", 8, 64, 3200, 128),
        Setting("gpt-1t", 8, 64, 9600, 384),
        100.0,
    ),
)
