"""What the ready adapters tell torchtitan, held against its own options and by its own parser.

`options-….json` has the names and types of its options at a commit, taken from its dataclasses.
Its parser runs where the variables below name interpreters that have it:

    AUTOTUNE_TORCHTITAN=/path/to/python         torchtitan 0.2.2, of the package index
    AUTOTUNE_TORCHTITAN_2026_08=/path/to/python torchtitan at the commit of options-2026-08.json
"""

from __future__ import annotations

import ast
import json
import os
import random
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.catalog import load_adapter
from evaluators.adapter.places import ConfigFile
from evaluators.adapter.rendering import StartPlan, TrainerStart, start_of
from search_spaces.errors import InvalidInput
from search_spaces.layers import Experts
from search_spaces.strategy import Strategy
from tests.evaluators.adapter.samples import MACHINE, MODEL

HERE = Path(__file__).parent
GPUS = 8
NODES = replace(MACHINE, gpus_per_node=GPUS, max_nodes=4)
LAYERS = replace(MODEL, num_layers=32, hidden_size=512, num_attention_heads=32)
OF_EXPERTS = replace(LAYERS, experts=Experts(num_experts=8, top_k=2, ffn_hidden_size=128))
PARSERS = {"0.2": "AUTOTUNE_TORCHTITAN", "2026-08": "AUTOTUNE_TORCHTITAN_2026_08"}
MANY = 200
"""Strategies that its parser is given: a minute or two."""


def _random(seed: int) -> Iterator[Strategy]:
    draw = random.Random(seed)
    while True:
        tensor, pipeline = draw.choice((1, 2, 4, 8)), draw.choice((1, 2, 4))
        nodes = draw.choice((1, 2, 4))
        if nodes * GPUS % (tensor * pipeline):
            continue
        experts = draw.choice((1, 1, 2, 4, 8))
        yield Strategy(
            tensor_parallel=tensor,
            pipeline_parallel=pipeline,
            micro_batch_size=draw.choice((1, 2, 4)),
            gradient_accumulation_steps=draw.choice((1, 2, 3, 8, 16)),
            zero_stage=draw.choice((0, 1, 2, 3)),
            num_nodes=nodes,
            activation_checkpointing=draw.choice(("none", "selective", "full")),
            sequence_parallel=tensor > 1 and draw.random() < 0.7,
            virtual_stages=draw.choice((1, 2, 4)) if pipeline > 2 else 1,
            precision=draw.choice(("fp32", "bf16", "fp8_current", "mxfp8")),
            expert_parallel=experts,
            expert_tensor_parallel=draw.choice((1, tensor)) if experts > 1 else 1,
        )


def _accepted(adapter: Adapter, out: Path, count: int) -> Iterator[tuple[Strategy, TrainerStart]]:
    """Yield starts of the first strategies that the adapter does not refuse."""
    for strategy in _random(1):
        if count == 0:
            return
        plan = StartPlan(
            transformer=OF_EXPERTS if strategy.expert_parallel > 1 else LAYERS,
            machine=NODES,
            strategy=strategy,
            iterations=6,
            out=str(out / str(count)),
        )
        try:
            start = start_of(adapter, plan)
        except InvalidInput:
            continue
        count -= 1
        yield strategy, start


def _fits(value: object, kind: str) -> bool:
    """Whether a value, as text where it was an argument, is of a type as Python writes it."""
    if kind.startswith("Literal"):
        return value in ast.literal_eval(kind.removeprefix("Literal"))
    if kind == "list[str]":
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    kinds = kind.split(" | ")
    if "int" in kinds and str(value).removeprefix("-").isdigit():
        return not isinstance(value, bool)
    return isinstance(value, bool) if kind == "bool" else "str" in kinds and isinstance(value, str)


def _flat(table: Mapping[str, Any], under: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{under}{key}.")
        else:
            yield f"{under}{key}", value


def _option_values(start: TrainerStart) -> dict[str, Any]:
    """What is set, by option: of the file, or of the arguments."""
    if start.files:
        file = ConfigFile.read("job.toml", start.files["job.toml"]).table
        return dict(_flat(file))
    words = [word for word in start.words if not word.startswith("activation-checkpoint:")]
    values: dict[str, Any] = {}
    for word, after in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            values[word[2:].replace(".no-", ".")] = True if after.startswith("--") else after
    return {name: value for name, value in values.items() if name not in {"module", "config"}}


@pytest.mark.parametrize("version", PARSERS)
def test_each_option_is_there_and_of_its_type(version: str, tmp_path: Path) -> None:
    options = json.loads((HERE / f"options-{version}.json").read_text())["options"]
    for _, start in _accepted(load_adapter(f"torchtitan-{version}"), tmp_path, 20):
        values = _option_values(start)
        assert set(values) <= set(options)
        assert [name for name, value in values.items() if not _fits(value, options[name])] == []


@pytest.mark.parametrize("version", PARSERS)
def test_its_own_parser_gives_every_strategy_back(version: str, tmp_path: Path) -> None:
    python = os.environ.get(PARSERS[version])
    if not python:
        pytest.skip(f"{PARSERS[version]} names no interpreter that has torchtitan {version}")
    starts = list(_accepted(load_adapter(f"torchtitan-{version}"), tmp_path, MANY))
    lists = [_arguments(start) for _, start in starts]
    out = tmp_path / "parsed"
    subprocess.run(
        [python, str(HERE / "parser.py"), str(out)],
        input="\n".join(map(json.dumps, lists)),
        text=True,
        check=True,
        capture_output=True,
    )
    parsed = [json.loads(line) for line in out.read_text().splitlines()]
    assert [config["refused"] for config in parsed if "refused" in config] == []
    assert [_strategy(config) for config in parsed] == [strategy for strategy, _ in starts]


def _arguments(start: TrainerStart) -> list[str]:
    """The words after the module's, with the files that they name written."""
    words = list(start.words[start.words.index("torchtitan.train") + 1 :])
    for name, text in start.files.items():
        folder = Path(words[-1]).parent
        folder.mkdir()
        (folder / name).write_text(text)
    return ["llama3_debugmodel" if word == "llama3_8b" else word for word in words]


def _strategy(config: Mapping[str, Any]) -> Strategy:
    """Return the strategy that a configuration of torchtitan means."""
    training, parallelism = config["training"], config["parallelism"]
    replicas, shards = (parallelism[f"data_parallel_{of}_degree"] for of in ("replicate", "shard"))
    tensor, pipeline = (parallelism[f"{of}_parallel_degree"] for of in ("tensor", "pipeline"))
    micro_batch, batch = _batches(training, parallelism)
    stages = (
        LAYERS.num_layers // (pipeline * parallelism["pipeline_parallel_layers_per_stage"])
        if pipeline > 1
        else 1
    )
    assert (parallelism["pipeline_parallel_schedule"] == "Interleaved1F1B") == (stages > 1)
    mode = config["activation_checkpointing"]
    modes: Mapping[str, Any] = {"FullAC": "full", "SelectiveAC": "selective", "NoneType": "none"}
    return Strategy(
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        micro_batch_size=micro_batch,
        gradient_accumulation_steps=batch // (micro_batch * replicas * shards),
        zero_stage={"default": 3, "never": 2}[parallelism["fsdp_reshard_after_forward"]]
        if shards > 1
        else 0,
        num_nodes=replicas * shards * tensor * pipeline // GPUS,
        activation_checkpointing=modes.get(mode, mode),
        sequence_parallel=tensor > 1 and parallelism.get("enable_sequence_parallel", True),
        virtual_stages=stages,
        precision=_precision(training["mixed_precision_param"], config["converters"]),
        expert_parallel=parallelism["expert_parallel_degree"],
        expert_tensor_parallel=parallelism.get("expert_tensor_parallel_degree", 1),
    )


def _precision(dtype: str, converters: Sequence[str]) -> Any:
    """Return the format of products; converters put layers over weights in 16 bits."""
    narrow = {"quantize.linear.float8": "fp8_current", "quantize.linear.mx": "mxfp8"}
    if converters:
        (converter,) = converters
        assert dtype == "bfloat16"
        return narrow[converter]
    return {"bfloat16": "bf16", "float32": "fp32"}[dtype]


def _batches(training: Mapping[str, Any], parallelism: Mapping[str, Any]) -> tuple[int, int]:
    """Return the samples of a micro-batch and those of a step; a pipeline's share must agree."""
    pipeline = parallelism["pipeline_parallel_degree"] > 1
    replicas = (
        parallelism["data_parallel_replicate_degree"] * parallelism["data_parallel_shard_degree"]
    )
    if "num_pp_microbatches" in parallelism:
        length = training["max_context_length"]
        micro_batch = training["num_tokens_per_microbatch_per_dp_rank"] // length
        batch = training["num_tokens_per_train_step"] // length
        held = micro_batch * parallelism["num_pp_microbatches"]
    else:
        micro_batch = parallelism["pipeline_parallel_microbatch_size"]
        batch, held = training["global_batch_size"], training["local_batch_size"]
    assert held * replicas == batch if pipeline else held == micro_batch
    return micro_batch, batch
