from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter

from autotune.schemas.requests import CampaignCreate
from autotune.schemas.resolution import campaign_space, machine_of, space_of, transformer_of
from autotune.schemas.spaces import BatchBounds, SpaceSpec
from search_spaces.catalog import load_machine, load_model, machine_names, model_names
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.fields import as_table, checked
from search_spaces.machine import Machine
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

SHAPE = {"num_layers": 8, "hidden_size": 512, "num_attention_heads": 8}


def space(nodes: int = 16, **spec: Any) -> SearchSpace:
    wire = TypeAdapter(SpaceSpec).validate_python(spec)
    return space_of(wire, load_model("gpt-175b"), load_machine("frontier"), nodes=nodes)


def fields(nodes: int = 16, **spec: Any) -> list[str]:
    with pytest.raises(InvalidInputs) as refusal:
        space(nodes, **spec)
    return [problem.field for problem in refusal.value.problems]


@pytest.mark.parametrize("name", model_names())
def test_models_survive_the_wire(name: str) -> None:
    model = transformer_of(name)
    wire = checked(Transformer, json.loads(json.dumps(as_table(model))), prefix="model")
    assert transformer_of(wire) == model


@pytest.mark.parametrize("name", machine_names())
def test_machines_survive_the_wire(name: str) -> None:
    machine = machine_of(name)
    wire = checked(Machine, json.loads(json.dumps(as_table(machine))), prefix="machine")
    assert machine_of(wire) == machine


def test_strategies_survive_the_wire() -> None:
    chosen = space(preset="table-v").lattice().strategy(7)
    assert checked(Strategy, json.loads(json.dumps(as_table(chosen)))) == chosen
    with pytest.raises(InvalidInputs):
        checked(Strategy, as_table(chosen) | {"zero_stage": 4})


def test_what_a_shape_leaves_out_follows_gpt_3() -> None:
    model = transformer_of(checked(Transformer, SHAPE, prefix="model"))
    assert (model.name, model.num_query_groups, model.ffn_hidden_size) == ("custom", 8, 2048)


def test_bare_sizes_are_models() -> None:
    assert transformer_of("13B").num_layers == 40


def test_a_name_may_be_followed_by_fields_that_differ() -> None:
    changed = replace(load_model("gpt-22b"), seq_length=8192)
    assert transformer_of("gpt-22b,seq=8192") == changed
    with pytest.raises(InvalidInputs, match=r"model\.seq_length"):
        transformer_of("gpt-22b,seq=0")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"num_attention_heads": 7}, "model.num_attention_heads"),
        ({"num_query_groups": 3}, "model.num_query_groups"),
        ({"num_layers": 20_000}, "model.num_layers"),
    ],
)
def test_a_wrong_shape_is_refused_by_field(change: dict[str, int], field: str) -> None:
    with pytest.raises(InvalidInputs) as refusal:
        transformer_of(checked(Transformer, SHAPE | change, prefix="model"))
    assert [problem.field for problem in refusal.value.problems] == [field]


def test_a_machine_in_a_wrong_unit_is_refused_by_field() -> None:
    table = as_table(load_machine("frontier")) | {"memory_gib": 65536.0}
    with pytest.raises(InvalidInputs, match="looks like MiB") as refusal:
        checked(Machine, table, prefix="machine")
    assert [problem.field for problem in refusal.value.problems] == ["machine.memory_gib"]


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../models/tiny", "tiny.toml", "./config.json", "./config.json,seq=8192"],
)
def test_a_path_is_no_name(path: str) -> None:
    with pytest.raises(InvalidInput, match="no such model"):
        transformer_of(path)
    with pytest.raises(InvalidInput, match="no such machine"):
        machine_of(path)


def test_a_field_overrides_the_ready_space() -> None:
    assert space(preset="table-v").raw == 3264
    narrowed = space(preset="table-v", zero_stage=1, global_batch_size=640)
    assert narrowed.raw == 3264 // 2
    assert narrowed.batch.fixed == 640


@pytest.mark.parametrize(
    ("choice", "values"),
    [
        (4, (4,)),
        ([1, 2], (1, 2)),
        ({"minimum": 2, "maximum": 8, "step": 3}, (2, 5, 8)),
        ("auto", (1, 2, 4, 8, 16)),
    ],
)
def test_a_dimension_in_each_of_its_forms(choice: Any, values: tuple[int, ...]) -> None:
    assert space(micro_batch_size=choice).dimensions["micro_batch_size"] == values


def test_a_batch_in_each_of_its_forms() -> None:
    assert space().batch.fixed is None
    assert space(global_batch_size=640).batch.fixed == 640
    bounded = space(global_batch_size=BatchBounds(minimum=600, maximum=700)).batch
    assert (bounded.minimum, bounded.maximum) == (600, 700)


def test_refusals_of_a_space_name_their_place_in_the_request() -> None:
    assert fields(preset="table-x") == ["space.preset"]
    assert fields(nodes=0) == ["nodes"]
    assert fields(nodes=12, preset="table-v") == ["space.num_nodes"]
    assert fields(precision="int8", zero_stage=7) == ["space.zero_stage", "space.precision"]
    bounds = {"minimum": 700, "maximum": 600}
    assert fields(global_batch_size=bounds) == ["space.global_batch_size"]
    wide = {"minimum": 1, "maximum": 1000}
    assert fields(micro_batch_size=wide, gradient_accumulation_steps=wide) == ["space"]


UNPIPELINED = {"global_batch_size": 512, "pipeline_parallel": 1}


@pytest.mark.parametrize(
    ("changes", "nodes"),
    [
        ({}, {16}),
        ({"pool_nodes": 4}, {4}),
        ({"nodes": 3, "space": UNPIPELINED}, {2}),  # a batch of 512 is no multiple of 3
        ({"objective": "tokens_per_s_per_gpu"}, {1, 2, 4, 8, 16}),
        ({"space": {"global_batch_size": 512, "num_nodes": "auto"}}, {1, 2, 4, 8, 16}),
    ],
)
def test_tokens_per_s_is_searched_on_all_nodes_unless_named(
    changes: dict[str, Any], nodes: set[int]
) -> None:
    fields = {"model": "gpt-22b", "machine": "frontier", "nodes": 16, "evaluator": "simulated"}
    space = {"space": {"global_batch_size": 512}}
    request = CampaignCreate.model_validate({**fields, **space, **changes})
    searched = campaign_space(request, load_model("gpt-22b"), load_machine("frontier"))
    assert set(searched.lattice()["num_nodes"].tolist()) == nodes
