"""Small real trials, and ways to wait for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil

from evaluators.local.backend import WARM, LocalBackend
from evaluators.trial import TrialOutcome, TrialProtocol, TrialRequest
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.patience import TRIAL_LIMIT_S, until

FOREVER = 1_000_000

GPT = Transformer(
    name="gpt",
    num_layers=4,
    hidden_size=32,
    num_attention_heads=4,
    num_query_groups=4,
    ffn_hidden_size=64,
    seq_length=16,
    vocab_size=50,  # four ranks cannot share it evenly
)
LLAMA = Transformer(
    name="llama",
    num_layers=4,
    hidden_size=32,
    num_attention_heads=4,
    num_query_groups=2,
    head_dim=12,
    ffn_hidden_size=48,
    seq_length=16,
    vocab_size=50,
    gated_mlp=True,
    tied_embeddings=False,
)
WIDE = Transformer.gpt(
    "wide", num_layers=4, hidden_size=128, num_attention_heads=4, seq_length=128, vocab_size=512
)


def machine(ranks: int, *, memory_gib: float = 1.0) -> Machine:
    return Machine(
        name="here",
        description="this machine",
        gpu="CPU process",
        gpus_per_node=ranks,
        max_nodes=1,
        memory_gib=memory_gib,
        peak_tflops=None,
        memory_bandwidth_gb_per_s=10.0,
        intra_node_gb_per_s=1.0,
        inter_node_gb_per_s=1.0,
    )


def strategy(tensor_parallel: int = 1, pipeline_parallel: int = 1, **others: Any) -> Strategy:
    chosen: dict[str, Any] = {
        "tensor_parallel": tensor_parallel,
        "pipeline_parallel": pipeline_parallel,
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 2,
        "zero_stage": 0,
        "num_nodes": 1,
        "activation_checkpointing": "none",
        "flash_attention": False,
        "precision": "fp32",
    }
    return Strategy(**(chosen | others))


def request(
    directory: Path,
    layout: Strategy,
    *,
    ranks: int,
    transformer: Transformer = GPT,
    memory_gib: float = 1.0,
    **protocol: Any,
) -> TrialRequest:
    measured: dict[str, Any] = {
        "accumulations": (layout.gradient_accumulation_steps,),
        "warmup_iterations": 1,
        "measured_iterations": 2,
        "time_limit_s": TRIAL_LIMIT_S,
    }
    return TrialRequest(
        token=directory.name,
        transformer=transformer,
        machine=machine(ranks, memory_gib=memory_gib),
        strategy=layout,
        protocol=TrialProtocol(**(measured | protocol)),
        directory=directory,
    )


def finished(backend: LocalBackend, trial: TrialRequest) -> TrialOutcome:
    """The outcome of a submitted trial, once it is there."""
    outcomes: list[TrialOutcome] = []

    def there() -> bool:
        outcome = backend.poll([trial])[trial.token]
        outcomes.extend([outcome] if isinstance(outcome, TrialOutcome) else [])
        return bool(outcomes)

    until(there, f"the outcome of {trial.token}")
    return outcomes[0]


def run(backend: LocalBackend, trial: TrialRequest) -> TrialOutcome:
    backend.submit(trial)
    return finished(backend, trial)


def training(trial: TrialRequest) -> bool:
    """Whether the trial has finished an iteration."""
    log = trial.directory / "trial.log"
    return log.exists() and "iteration 1" in log.read_text()


def ranks_of(pid: int) -> list[psutil.Process]:
    """The processes at the ends of the trees below the warm processes of `pid`: the ranks."""
    alive = [c for c in psutil.Process(pid).children() if c.status() != psutil.STATUS_ZOMBIE]
    warm = [child for child in alive if WARM in child.cmdline()]
    below = [process for each in warm for process in each.children(recursive=True)]
    parents = {process.ppid() for process in below}
    return [process for process in below if process.pid not in parents]
