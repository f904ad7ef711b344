"""Random strategies of the space that an adapter's trainer offers."""

from __future__ import annotations

from random import Random

import numpy as np

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.rendering import StartPlan, capabilities_of_adapter
from search_spaces.batch import GlobalBatch
from search_spaces.dimensions import NEUTRAL
from search_spaces.errors import InvalidInput
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.rules import rule_masks
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

MOST_NODES = 8


def random_strategies(
    adapter: Adapter, transformer: Transformer, machine: Machine, wanted: int
) -> list[Strategy]:
    """Return as many different strategies as are wanted; the same ones at each call."""
    program = capabilities_of_adapter(adapter)
    random = Random(wanted)
    legal: dict[Strategy, None] = {}
    for _ in range(100):
        drawn = (_random(adapter, transformer, random) for _ in range(20 * wanted))
        lattice = Lattice.of(list(filter(None, drawn)), gpus_per_node=machine.gpus_per_node)
        broken = rule_masks(lattice, transformer, machine, GlobalBatch(), program=program)
        legal |= dict.fromkeys(lattice.take(~np.any(list(broken.values()), axis=0)))
        if len(legal) >= wanted:
            return list(legal)[:wanted]
    raise AssertionError("hardly any strategy of the space is legal")


def _random(adapter: Adapter, transformer: Transformer, random: Random) -> Strategy | None:
    """Return any strategy that differs from the neutral one in what the adapter varies."""
    experts = transformer.experts is not None
    tensor = random.choice([1, 1, 2, 4, 8])
    pipeline = random.choice([1, 1, 2, 3, 4, 5, 8])
    precision = random.choice(["bf16", "fp16", "fp32", *adapter.values.get("precision", ())])
    values = {
        "tensor_parallel": tensor,
        "pipeline_parallel": pipeline,
        "micro_batch_size": random.randint(1, 8),
        "gradient_accumulation_steps": pipeline * random.randint(1, 9) + random.choice([0, 0, 1]),
        "zero_stage": random.choice([0, 1, 2, 3]),
        "activation_checkpointing": random.choice(
            ["none", "selective", "full", *adapter.values.get("activation_checkpointing", ())]
        ),
        "sequence_parallel": tensor > 1 and (experts or random.choice([False, True])),
        # What asks for FlashAttention with 32 bits gets none.
        "flash_attention": precision != "fp32" and random.choice([False, True]),
        "virtual_stages": random.choice([1, 1, 2, 3]),
        "precision": precision,
        "context_parallel": random.choice([1, 1, 1, 2, 4]),
        "expert_parallel": random.choice([1, 2, 4, 8, 16]) if experts else 1,
        "expert_tensor_parallel": random.choice([1, tensor]) if experts else 1,
    }
    varied = {name: value for name, value in values.items() if name in adapter.varied}
    try:
        return Strategy(**dict(NEUTRAL) | varied | {"num_nodes": random.randint(1, MOST_NODES)})  # type: ignore[arg-type]
    except InvalidInput:
        return None


def two_accumulations(model: Transformer, machine: Machine, strategy: Strategy) -> StartPlan | None:
    """Return a start at half of a strategy's GAS for 5 iterations, and then at all of it for 7;
    None where it has no half that virtual stages allow."""
    stages = strategy.pipeline_parallel if strategy.virtual_stages > 1 else 1
    half = strategy.gradient_accumulation_steps // 2
    if not half or half % stages:
        return None
    return StartPlan(
        transformer=model,
        machine=machine,
        strategy=strategy,
        iterations=12,
        first_accumulation=half,
        first_iterations=5,
    )


def batches_of(plan: StartPlan) -> list[int]:
    """Return the global batch of each of its iterations."""
    first, last = (each.global_batch_size(plan.machine.gpus_per_node) for each in plan.strategies)
    return [first] * plan.first_iterations + [last] * (plan.iterations - plan.first_iterations)
