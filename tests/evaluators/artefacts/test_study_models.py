"""The launch files of the Frontier study's models, through the parser and the validation of a
checkout of Megatron-DeepSpeed that `AUTOTUNE_MEGATRON_DEEPSPEED` names, whichever its line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from autotune.schemas.resolution import space_of
from autotune.schemas.spaces import SpaceSpec
from evaluators.cluster.profile import Megatron, MegatronVariant
from evaluators.frameworks.deepspeed import deepspeed_config
from evaluators.frameworks.megatron_deepspeed.arguments import (
    VARIANTS,
    arguments_text,
    null_vocabulary,
)
from evaluators.frameworks.megatron_deepspeed.checkout import (
    defects_of,
    flash_attention_option,
    refusals,
)
from search_spaces.catalog import load_machine, load_model
from search_spaces.errors import InvalidInput
from search_spaces.strategy import Strategy
from tests.evaluators.adapter.megatron_lm import answers

FRONTIER = load_machine("frontier")
CHECKOUT = os.environ.get("AUTOTUNE_MEGATRON_DEEPSPEED", "")
NODES = {"gpt-22b": 4, "gpt-175b": 16, "gpt-1t": 128}
WANTED = 40
RUN = "--tokenizer-type NullTokenizer --train-iters 8 --lr 0.0001 --data-path d --split 100,0,0"


def _strategies(model: str) -> list[Strategy]:
    """Return strategies that are spread evenly over the automatic space of a model."""
    nodes = NODES[model]
    spec = SpaceSpec(global_batch_size=16 * nodes * FRONTIER.gpus_per_node)
    lattice = space_of(spec, load_model(model), FRONTIER, nodes=nodes).lattice()
    rows = np.linspace(0, len(lattice) - 1, 20 * WANTED).astype(int)
    return [lattice.strategy(int(row)) for row in np.random.default_rng(1).permutation(rows)]


@pytest.mark.skipif(not CHECKOUT, reason="AUTOTUNE_MEGATRON_DEEPSPEED names no checkout")
@pytest.mark.parametrize("model", NODES)
def test_what_is_exported_passes_the_validation_of_the_checkout(model: str, tmp_path: Path) -> None:
    forked = (Path(CHECKOUT) / VARIANTS["ornl"].script).exists()
    variant: MegatronVariant = "ornl" if forked else "main"
    flash = flash_attention_option(Megatron(path=CHECKOUT, variant=variant))
    transformer, defects = load_model(model), defects_of(CHECKOUT)
    asked: list[Strategy] = []
    requests: list[dict[str, object]] = []
    refused = 0
    for strategy in _strategies(model):
        try:
            if next(refusals(defects, transformer, strategy, FRONTIER), None):
                raise InvalidInput("strategy", strategy.short(), "a defect", valid="another")
            text = arguments_text(transformer, FRONTIER, strategy, variant, flash_attention=flash)
        except InvalidInput:
            refused += 1
            continue
        ranks = strategy.world_size(FRONTIER.gpus_per_node)
        config = tmp_path / f"{len(asked)}.json"
        config.write_text(
            json.dumps(
                deepspeed_config(
                    transformer,
                    strategy,
                    data_parallel=strategy.data_parallel(FRONTIER.gpus_per_node),
                    program="megatron-deepspeed",
                )
            )
        )
        words = text.replace("ds_config.json", str(config)).split() + RUN.split()
        words += ["--vocab-size", str(null_vocabulary(transformer))]
        words += ["--master-addr", "node1"] * forked
        variables = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
        requests.append({"words": words, "variables": variables, "world_size": ranks})
        asked.append(strategy)
        if len(asked) == WANTED:
            break
    assert len(asked) == WANTED
    for strategy, args in zip(asked, answers(CHECKOUT, requests), strict=True):
        assert "error" not in args, (strategy.short(), args["error"])
        assert (args["tensor_model_parallel_size"], args["pipeline_model_parallel_size"]) == (
            strategy.tensor_parallel,
            strategy.pipeline_parallel,
        )
        assert args["micro_batch_size"] == strategy.micro_batch_size
        batch = strategy.global_batch_size(FRONTIER.gpus_per_node)
        assert args["global_batch_size"] == batch
        assert args["num_layers"] == transformer.num_layers
    print(f"{model}: {len(asked)} accepted, {refused} refused before")
