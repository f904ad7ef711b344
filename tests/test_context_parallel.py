"""Context parallelism: the dimension that was added by the table alone, in all that follows it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.baseline.megatron import arguments
from autotune.baseline.statement import key_values
from autotune.cost_model import estimate
from autotune.cost_model.columns import Columns
from evaluators.adapter.catalog import load_adapter
from evaluators.adapter.rendering import capabilities_of_adapter
from evaluators.program.support import capabilities_of
from search_spaces.catalog import load_machine, load_model
from search_spaces.lattice import Lattice
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.rules import findings
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy

H100 = load_machine("dgx-h100")
LLAMA = replace(load_model("llama-3-8b"), seq_length=32768)
MEGATRON = capabilities_of_adapter(load_adapter("megatron-deepspeed"))

BUNDLED = capabilities_of("local")


def strategy(context_parallel: int, **changes: int | bool) -> Strategy:
    values = {
        "tensor_parallel": 2,
        "pipeline_parallel": 1,
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 8,
        "zero_stage": 1,
        "num_nodes": 2,
    }
    return Strategy(**values | changes, context_parallel=context_parallel)  # type: ignore[arg-type]


def test_it_divides_the_replicas() -> None:
    cut = strategy(4)
    assert (cut.model_parallel, cut.data_parallel(8), cut.global_batch_size(8)) == (8, 2, 16)
    lattice = Lattice.of([strategy(1), cut], gpus_per_node=8)
    assert lattice.data_parallel.tolist() == [8, 2]
    assert lattice.groups.dense_shards.tolist() == [8, 8]
    assert "CP 4" in cut.short()
    assert "CP" not in strategy(1).short()


@pytest.mark.parametrize(
    ("context_parallel", "changes", "seq_length", "rule"),
    [
        (2, {}, 32768, None),
        (3, {}, 32766, "world_size"),
        (4, {}, 32764, "sequence_by_context"),
        (4, {}, 32776, None),
        (4, {"sequence_parallel": True}, 32776, "sequence_by_context"),
        (1, {}, 32767, None),
    ],
)
def test_what_is_legal(
    context_parallel: int, changes: dict[str, bool], seq_length: int, rule: str | None
) -> None:
    """Megatron-LM's `validate_args`: `seq_length % (2 x context_parallel_size) == 0`."""
    model = replace(LLAMA, seq_length=seq_length)
    found = findings(strategy(context_parallel, **changes), model, H100)
    assert [each.rule for each in found if each.severity == "refuse"] == ([rule] if rule else [])


@pytest.mark.parametrize(
    ("program", "seq_length", "values"),
    [
        (ANY_PROGRAM, 32768, (1, 2, 4, 8, 16)),
        (ANY_PROGRAM, 8192, (1, 2, 4)),
        (ANY_PROGRAM, 2048, (1,)),
        (BUNDLED, 32768, (1, 2, 4, 8, 16)),
        (MEGATRON, 32768, (1,)),
        (capabilities_of_adapter(load_adapter("megatron-lm")), 32768, (1, 2, 4, 8, 16)),
        (capabilities_of_adapter(load_adapter("litgpt")), 32768, (1,)),
    ],
)
def test_sequences_are_cut_where_the_program_can(
    program: ProgramCapabilities, seq_length: int, values: tuple[int, ...]
) -> None:
    model = replace(LLAMA, seq_length=seq_length)
    space = SearchSpace.build(model, H100, nodes=2, choices={}, program=program)
    assert space.dimensions["context_parallel"] == values


def test_the_bundled_trainer_gives_each_rank_whole_query_groups() -> None:
    reasons = [
        {each.rule: each.reason for each in findings(cut, LLAMA, H100, program=BUNDLED)}
        for cut in (strategy(4), strategy(4, tensor_parallel=4))
    ]
    assert "program" not in reasons[0]
    assert "query groups" in reasons[1]["program"]


def test_memory_and_time_follow_it() -> None:
    """On the same GPUs, with the same batch: activations are cut, states are sharded as before."""
    chosen = [strategy(1), strategy(4, gradient_accumulation_steps=32)]
    lattice = Lattice.of(chosen, gpus_per_node=8)
    columns = Columns.of(LLAMA, lattice)
    assert np.ravel(columns["context_parallel"]).tolist() == [1, 4]
    assert np.ravel(columns["zero_shard_gpus"]).tolist() == [8]
    found = estimate(LLAMA, H100, lattice)
    memory = found.memory_parts_gib
    assert memory["activations"][1] == pytest.approx(memory["activations"][0] / 4)
    assert memory["optimizer"][1] == memory["optimizer"][0]
    times = found.time_parts_s
    assert times["attention"][1] == pytest.approx(times["attention"][0])
    assert times["context_parallel"][0] == 0
    assert times["context_parallel"][1] < 0.05 * found.iteration_time_s[1]


def test_users_write_it() -> None:
    given = key_values("tp=8,cp=4").dimensions
    assert given == {"tensor_parallel": 8, "context_parallel": 4}
    line = "--tensor-model-parallel-size 8 --context-parallel-size 4 --deepspeed"
    assert arguments(line, LLAMA).dimensions["context_parallel"] == 4
