from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.automatic import divisors
from search_spaces.batch import GlobalBatch
from search_spaces.catalog import load_machine, load_model
from search_spaces.choices import automatic, automatic_accumulations, values_of
from search_spaces.dimensions import DIVIDING, LARGEST_WHOLE
from search_spaces.errors import InvalidInput
from search_spaces.machine import default_precision
from search_spaces.space import SearchSpace
from tests.search_spaces.scene import FRONTIER, GPT_175B


@pytest.mark.parametrize(
    ("dimension", "choice", "values"),
    [
        ("tensor_parallel", 4, (4,)),
        ("tensor_parallel", [8, 1, 8], (1, 8)),
        ("micro_batch_size", {"minimum": 4, "maximum": 7}, (4, 5, 6, 7)),
        ("micro_batch_size", {"minimum": 4, "maximum": 9, "step": 2}, (4, 6, 8)),
        ("zero_stage", {"minimum": 1, "maximum": 3}, (1, 2, 3)),
        ("sequence_parallel", [True, False], (False, True)),
        ("precision", ["fp16", "bf16"], ("fp16", "bf16")),
    ],
)
def test_choices(dimension: str, choice: Any, values: tuple[Any, ...]) -> None:
    assert values_of(dimension, choice) == values


@pytest.mark.parametrize(
    ("dimension", "choice", "reason"),
    [
        ("tensor_parallel", 0, "not a value"),
        ("tensor_parallel", True, "not a value"),
        ("tensor_parallel", 2.0, "not a value"),
        ("tensor_parallel", None, "not a value"),
        ("tensor_parallel", "many", "not a value"),
        ("tensor_parallel", [1, [2]], "not a value"),
        ("tensor_parallel", [], "empty list"),
        ("tensor_parallel", [1] * 1025, "list of 1025 values"),
        ("zero_stage", 4, "not a value"),
        ("zero_stage", {"minimum": 2, "maximum": 4}, "not a value"),
        ("flash_attention", 1, "not a value"),
        ("flash_attention", {"minimum": 0, "maximum": 1}, "no ranges"),
        ("precision", "int8", "not a value"),
        ("precision", 16, "not a value"),
        ("micro_batch_size", {"minimum": 4}, "not a range"),
        ("micro_batch_size", {"minimum": 1, "maximum": 2, "by": 1}, "not a range"),
        ("micro_batch_size", {"minimum": 9, "maximum": 4}, "lies above"),
        ("micro_batch_size", {"minimum": 1, "maximum": 4, "step": 0}, "at least 1"),
        ("micro_batch_size", {"minimum": 1, "maximum": 4.5}, "whole numbers"),
        ("micro_batch_size", {"minimum": 1, "maximum": 10**6}, "list of 1025 values"),
        ("micro_batch_size", {"minimum": 1, "maximum": 10**18}, "not a value"),
    ],
)
def test_a_wrong_choice_is_refused_by_name(dimension: str, choice: Any, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as refusal:
        values_of(dimension, choice)
    assert refusal.value.field == dimension
    assert refusal.value.valid


def test_automatic_values() -> None:
    def values(dimension: str) -> tuple[Any, ...]:
        return automatic(dimension, GPT_175B, FRONTIER, nodes=12)

    assert values("tensor_parallel") == (1, 2, 4, 8)
    assert values("pipeline_parallel") == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96)
    assert values("micro_batch_size") == (1, 2, 4, 8, 16)
    assert values("zero_stage") == (0, 1, 2, 3)
    assert values("num_nodes") == (1, 2, 4, 8, 12)
    assert values("virtual_stages") == (1, 2, 3, 4, 6)
    assert values("activation_checkpointing") == ("none", "selective", "full")
    assert values("sequence_parallel") == (False, True)
    assert values("precision") == ("bf16", "fp16")


def test_automatic_values_follow_the_machine() -> None:
    summit, local = load_machine("summit"), load_machine("local")
    tiny = load_model("tiny")
    assert automatic("tensor_parallel", GPT_175B, summit, nodes=1) == (1, 2, 3, 4, 6)
    assert automatic("pipeline_parallel", tiny, summit, nodes=1) == (1, 2, 4)
    assert automatic("precision", GPT_175B, summit, nodes=1) == ("fp16",)
    if local.peak_tflops is None:
        assert automatic("precision", tiny, local, nodes=1) == ("fp32",)
        assert default_precision(local) == "fp32"
    assert default_precision(summit) == "fp16"
    assert default_precision(FRONTIER) == "bf16"


def accumulations(batch: GlobalBatch, **changes: tuple[int, ...]) -> tuple[int, ...]:
    values: dict[str, Any] = {
        **dict.fromkeys(DIVIDING, (1,)),
        "tensor_parallel": (1, 2),
        "pipeline_parallel": (1, 2),
        "micro_batch_size": (1,),
        "num_nodes": (1,),
    }
    return automatic_accumulations(values | changes, FRONTIER, batch)


def test_accumulation_follows_a_fixed_batch() -> None:
    assert accumulations(GlobalBatch.of(80)) == (10, 20, 40)


def test_accumulation_follows_the_bounds_of_a_batch() -> None:
    assert accumulations(GlobalBatch(minimum=60, maximum=80)) == (8, 16, 32)
    assert accumulations(GlobalBatch(minimum=77, maximum=80)) == (10, 20, 40)
    assert accumulations(GlobalBatch(maximum=80)) == (8, 16, 32)


def test_accumulation_fills_the_pipeline_of_a_free_batch() -> None:
    assert accumulations(GlobalBatch()) == (1, 2, 4, 8, 16, 32)
    assert accumulations(GlobalBatch(), pipeline_parallel=(1, 12))[-1] == 64
    assert accumulations(GlobalBatch(minimum=1000))[-1] == 512


def test_a_batch_that_nothing_makes_leaves_one_accumulation() -> None:
    assert accumulations(GlobalBatch.of(7)) == (1,)


@given(batch=st.integers(1, 4096), micro_batch=st.integers(1, 12))
def test_a_fixed_batch_is_met_wherever_it_can_be(batch: int, micro_batch: int) -> None:
    found = accumulations(GlobalBatch.of(batch), micro_batch_size=(micro_batch,))
    for replicas in (8, 4, 2):
        if batch % (micro_batch * replicas) == 0:
            assert batch // (micro_batch * replicas) in found


def test_divisors() -> None:
    assert divisors(12) == [1, 2, 3, 4, 6, 12]


@pytest.mark.parametrize("bounds", [{"minimum": 0}, {"maximum": -1}, {"minimum": 5, "maximum": 4}])
def test_bounds_that_nothing_lies_between_are_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(InvalidInput) as refusal:
        GlobalBatch(**bounds)
    assert refusal.value.field == "global_batch_size"


def test_a_batch_in_words() -> None:
    batches = [
        GlobalBatch(),
        GlobalBatch.of(640),
        GlobalBatch(minimum=8),
        GlobalBatch(maximum=64),
        GlobalBatch(minimum=8, maximum=64),
    ]
    assert [str(batch) for batch in batches] == ["any", "640", "8 or more", "1 to 64", "8 to 64"]
    assert [batch.fixed for batch in batches] == [None, 640, None, None, None]


def test_automatic_pipelines_are_uneven_if_possible_and_cheap() -> None:
    llama, h100 = load_model("llama-3-405b"), load_machine("dgx-h100")
    assert llama.num_layers == 126
    found = automatic("pipeline_parallel", llama, h100, nodes=16)
    assert {1, 2, 3, 6, 7, 4, 8, 16, 32, 64} <= set(found)
    assert 128 not in found  # more than there are layers
    # 80 layers in 64 stages fill 62 % of them; in 32 it is 83 %.
    seventy = automatic("pipeline_parallel", load_model("70B"), h100, nodes=16)
    assert 32 in seventy
    assert 64 not in seventy


@pytest.mark.parametrize(
    ("model", "values"),
    [
        ("llama-3-70b", {1, 2, 4, 5}),
        ("qwen3-235b-a22b", {1, 2, 3, 4, 6}),  # 94 layers: PP 8, VP 3 has 3, 22 x 4, 3
        ("deepseek-v3", {1, 2, 4}),  # 61 layers: PP 4, VP 4 has 15 x 4, 1
        ("kimi-k2", {1, 2, 4}),  # 61 layers: PP 4, VP 4 has 3, 13 x 4, 3, 3
    ],
)
def test_automatic_virtual_stages_may_lack_few_layers(model: str, values: set[int]) -> None:
    machine = load_machine("dgx-h100")
    assert set(automatic("virtual_stages", load_model(model), machine, nodes=32)) == values


def test_an_accumulation_is_at_most_what_a_strategy_may_have() -> None:
    for batch in (GlobalBatch(minimum=10**18), GlobalBatch.of(10**18), GlobalBatch.of(10**9)):
        space = SearchSpace.build(GPT_175B, FRONTIER, nodes=2, choices={}, batch=batch)
        assert max(map(int, space.dimensions["gradient_accumulation_steps"])) <= LARGEST_WHOLE
