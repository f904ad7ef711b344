"""What is rendered from a strategy is read back as the same strategy, whatever the strategy."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Literal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.artefacts.megatron_deepspeed import sbatch_script
from evaluators.artefacts.other_trainers import megatron_lm_arguments, nemo_yaml
from evaluators.cluster.profile import ClusterProfile, Megatron
from evaluators.frameworks.deepspeed import ds_config_json
from evaluators.frameworks.megatron_deepspeed.arguments import arguments, uses_deepspeed
from search_spaces.catalog import load_machine, load_model
from search_spaces.errors import InvalidInput
from search_spaces.strategy import Precision, Strategy
from tests.evaluators.adapter.megatron_lm import parsed, strategy_of_arguments
from tests.evaluators.artefacts.test_artefacts import launch
from tests.evaluators.frameworks.readers import strategy_of, strategy_of_nemo, strategy_of_script
from tests.evaluators.frameworks.strategies import BASE, legal_strategies

FRONTIER = load_machine("frontier")
GPT = load_model("gpt-22b")
LLAMA = load_model("llama-3-70b")

SIXTEEN_BITS: tuple[Precision, ...] = ("bf16", "fp16")

either = st.sampled_from(["main", "ornl"])


@settings(max_examples=60)
@given(legal_strategies(), either)
def test_megatron_deepspeed(asked: Strategy, variant: Literal["main", "ornl"]) -> None:
    words = [word for argument in arguments(GPT, FRONTIER, asked, variant) for word in argument]
    found = strategy_of(words, FRONTIER, num_nodes=asked.num_nodes, variant=variant)
    assert found == asked


@settings(max_examples=50)
@given(legal_strategies())
def test_deepspeeds_configuration_is_of_the_same_strategy(asked: Strategy) -> None:
    config = json.loads(ds_config_json(GPT, FRONTIER, asked))
    enabled = [p for p in SIXTEEN_BITS if config.get(p, {}).get("enabled")]
    precision: Precision = enabled[0] if enabled else "fp32"
    replicas = asked.num_nodes * 8 // (asked.tensor_parallel * asked.pipeline_parallel)
    assert config["train_batch_size"] == (
        config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * replicas
    )
    found = replace(
        asked,
        micro_batch_size=config["train_micro_batch_size_per_gpu"],
        gradient_accumulation_steps=config["gradient_accumulation_steps"],
        zero_stage=config["zero_optimization"]["stage"],
        precision=precision,
    )
    assert found == asked


@settings(max_examples=20)
@given(legal_strategies(), either)
def test_the_sbatch_script(asked: Strategy, variant: Literal["main", "ornl"]) -> None:
    profile = ClusterProfile(name="mine", megatron=Megatron(path="/m", variant=variant))
    text = sbatch_script(launch(asked, profile=profile))
    assert strategy_of_script(text) == asked
    assert ("ds_config-$SLURM_JOB_ID.json" in text) == uses_deepspeed(asked)


def test_exports_of_other_trainers_are_of_the_same_strategy() -> None:
    """By their adapters, of which all kinds of strategies come back."""
    args = parsed(megatron_lm_arguments(GPT, FRONTIER, BASE).split())
    assert strategy_of_arguments(args, FRONTIER, num_nodes=BASE.num_nodes) == BASE
    assert strategy_of_nemo(nemo_yaml(GPT, FRONTIER, BASE)) == BASE


OF_LLAMA = {
    "num_layers": 80,
    "hidden_size": 8192,
    "ffn_hidden_size": 28672,
    "swiglu": True,
    "group_query_attention": True,
    "num_query_groups": 8,
    "normalization": "RMSNorm",
    "position_embedding_type": "rope",
    "add_bias_linear": False,
    "untie_embeddings_and_output_weights": True,
}
OF_LLAMA_IN_NEMO = {
    "num_layers": 80,
    "encoder_seq_length": LLAMA.seq_length,
    "num_query_groups": 8,
    "activation": "swiglu",
    "normalization": "rmsnorm",
    "position_embedding_type": "rope",
    "bias": False,
    "share_embeddings_and_output_weights": False,
}
OF_GPT = {
    "group_query_attention": False,
    "normalization": "LayerNorm",
    "add_bias_linear": True,
    "position_embedding_type": "learned_absolute",
}


def test_exports_of_other_trainers_have_the_model() -> None:
    for model, expected in ((LLAMA, OF_LLAMA), (GPT, OF_GPT)):
        args = parsed(megatron_lm_arguments(model, FRONTIER, BASE).split())
        assert {name: args[name] for name in expected} == expected
    config = yaml.safe_load(nemo_yaml(LLAMA, FRONTIER, BASE))
    assert {name: config["model"][name] for name in OF_LLAMA_IN_NEMO} == OF_LLAMA_IN_NEMO
    assert config["defaults"] == ["megatron_gpt_config", "_self_"]  # NeMo's own lies under it


def test_what_is_the_users_own_is_left_to_the_user() -> None:
    words = set(megatron_lm_arguments(GPT, FRONTIER, BASE).split())
    assert not words & {"--mock-data", "--train-iters", "--lr", "--tokenizer-type", "--seed"}
    assert set(yaml.safe_load(nemo_yaml(GPT, FRONTIER, BASE))) == {"defaults", "trainer", "model"}
    assert "data" not in yaml.safe_load(nemo_yaml(GPT, FRONTIER, BASE))["model"]


def test_an_engine_that_was_not_measured_is_named() -> None:
    sharded = replace(BASE, pipeline_parallel=1, zero_stage=3)
    assert "# ZeRO 3 is torch's FSDP here" in nemo_yaml(GPT, FRONTIER, sharded)
    assert "FSDP" not in nemo_yaml(GPT, FRONTIER, BASE)


def test_an_export_without_words_for_the_strategy_is_refused() -> None:
    impossible = replace(BASE, zero_stage=2)
    for export in (megatron_lm_arguments, nemo_yaml):
        with pytest.raises(InvalidInput, match="pipelines"):
            export(GPT, FRONTIER, impossible)


def test_uneven_stages_are_refused_if_no_option_expresses_them() -> None:
    with pytest.raises(InvalidInput, match="even stages alone"):
        nemo_yaml(replace(GPT, num_layers=14), FRONTIER, replace(BASE, pipeline_parallel=5))
