"""What is rendered from a strategy is read back as the same strategy, whatever the strategy."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from evaluators.artefacts.other_trainers import megatron_lm_arguments, nemo_yaml
from search_spaces.catalog import load_machine, load_model
from search_spaces.errors import InvalidInput
from tests.evaluators.adapter.megatron_lm import parsed, strategy_of_arguments
from tests.evaluators.frameworks.readers import strategy_of_nemo
from tests.evaluators.frameworks.strategies import BASE

FRONTIER = load_machine("frontier")
GPT = load_model("gpt-22b")
LLAMA = load_model("llama-3-70b")


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
    with pytest.raises(InvalidInput, match="only pipelines of even stages"):
        nemo_yaml(replace(GPT, num_layers=14), FRONTIER, replace(BASE, pipeline_parallel=5))
