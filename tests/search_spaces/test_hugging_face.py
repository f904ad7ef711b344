from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.catalog import load_model, model_from_hugging_face, model_names, read_model
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.transformer import Transformer

LLAMA_2_70B: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "max_position_embeddings": 4096,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "n_layer": 12,
    "n_embd": 768,
    "n_head": 12,
    "n_positions": 1024,
    "n_inner": None,
    "vocab_size": 50257,
}
PYTHIA_6_9B: dict[str, Any] = {
    "model_type": "gpt_neox",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "intermediate_size": 16384,
    "max_position_embeddings": 2048,
    "vocab_size": 50432,
    "tie_word_embeddings": False,
}
MISTRAL_7B: dict[str, Any] = {
    "model_type": "mistral",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
QWEN2_7B: dict[str, Any] = {
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "max_position_embeddings": 131072,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}
RECORDED = Path(__file__).parent / "recorded"
MIXED: dict[str, dict[str, Any]] = json.loads((RECORDED / "hugging-face-configs.json").read_text())
"""Published configurations of models whose layers are not all dense and alike."""
FAMILIES: dict[str, dict[str, Any]] = json.loads(
    (RECORDED / "hugging-face-families.json").read_text()
)
"""One or two published configurations of each family, with the parameters that were published."""


@pytest.mark.parametrize(
    ("config", "published_parameters"),
    [
        (LLAMA_2_70B, 68_976_648_192),
        (GPT2, 124_439_808),
        (PYTHIA_6_9B, 6_857_302_016),
        (MISTRAL_7B, 7_241_732_096),
        (QWEN2_7B, 7_615_616_512),
    ],
)
def test_parameters_are_the_published_ones(
    config: dict[str, Any], published_parameters: int
) -> None:
    model = model_from_hugging_face(config, name="model")
    assert model.parameters == pytest.approx(published_parameters, rel=0.002)


def _shape(model: Transformer) -> Transformer:
    return replace(model, details=None)


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_has_its_published_parameters(name: str) -> None:
    published = FAMILIES[name]
    model = model_from_hugging_face(published["config"], name=name)
    assert model.parameters == pytest.approx(published["total"], rel=0.01)
    if name in model_names():
        preset = load_model(name)
        assert _shape(replace(model, seq_length=preset.seq_length)) == _shape(preset)
    if published["active"]:
        assert model.active_parameters == pytest.approx(published["active"], rel=0.025)


COUNTS = {
    "mistral-7b-v0.1": (32, 32, 0, 0, 32, 0),
    "phi-3-mini-4k": (32, 32, 0, 0, 32, 0),
    "qwen2.5-7b": (28, 0, 0, 0, 28, 0),
    "smollm3-3b": (36, 0, 0, 0, 36, 0),
    "gemma-2-9b": (42, 21, 0, 0, 42, 0),
    "gemma-3-1b": (26, 22, 0, 0, 26, 0),
    "command-r7b": (32, 24, 0, 0, 32, 0),
    "exaone-4-32b": (64, 48, 0, 0, 64, 0),
    "llama-4-maverick": (48, 36, 0, 0, 24, 0),
    "step-3.7-flash": (45, 33, 0, 0, 3, 3),
    "qwen3-next-80b-a3b": (48, 0, 36, 0, 0, 0),
    "qwen3.5-397b-a17b": (60, 0, 45, 0, 0, 1),
    "qwen3.5-27b": (64, 0, 48, 0, 64, 1),
    "kimi-linear-48b-a3b": (27, 0, 20, 0, 1, 0),
    "granite-4.0-h-small": (40, 0, 0, 36, 0, 0),
    "falcon-h1-34b": (72, 0, 0, 72, 72, 0),
    "nemotron-h-56b": (118, 0, 0, 54, 54, 0),
    "nemotron-3-super-120b-a12b": (88, 0, 0, 40, 0, 1),
    "ernie-4.5-300b-a47b": (54, 0, 0, 0, 3, 0),
    "minimax-m2.5": (62, 0, 0, 0, 0, 3),
    "glm-5": (78, 0, 0, 0, 3, 1),
}
"""Layers in all, with a window, with linear attention, with Mamba, with a dense MLP, and of
multi-token prediction."""


@pytest.mark.parametrize(
    "change",
    [
        {"use_flash_attn": True, "num_labels": 2, "unsloth_fixed": True, "made_by": "us"},
        {"some_multiplier": 0.5, "extra_layers": 0, "extra_experts": None, "new_norm": True},
    ],
)
def test_keys_without_effect_are_passed_over(change: dict[str, Any]) -> None:
    config = FAMILIES["qwen3-8b"]["config"]
    read = model_from_hugging_face(config | change, name="qwen3-8b")
    assert read == model_from_hugging_face(config, name="qwen3-8b")


@pytest.mark.parametrize("name", COUNTS)
def test_each_kind_of_layer_is_counted(name: str) -> None:
    model = model_from_hugging_face(FAMILIES[name]["config"], name=name)
    assert sum(kind.count for kind in model.kinds) == model.num_layers
    assert COUNTS[name] == (
        model.num_layers,
        sum(kind.count for kind in model.kinds if kind.window),
        model.linear_attention.layers if model.linear_attention else 0,
        model.mamba.layers if model.mamba else 0,
        sum(kind.count for kind in model.kinds if kind.mlp == "dense"),
        model.mtp_layers,
    )


ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 10**12) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@settings(max_examples=300)
@given(st.sampled_from(sorted(FAMILIES)), st.data())
def test_any_configuration_is_read_or_refused(name: str, data: st.DataObject) -> None:
    config = dict(FAMILIES[name]["config"])
    config |= config.pop("text_config", {})
    keys = st.sampled_from(sorted(config))
    changed = data.draw(st.dictionaries(keys, ANY_VALUE, min_size=1, max_size=4))
    with contextlib.suppress(InvalidInput, InvalidInputs):
        assert model_from_hugging_face(config | changed, name=name).parameters > 0


def test_a_window_that_holds_the_longest_context_is_none() -> None:
    config = FAMILIES["phi-3-mini-4k"]["config"] | {"sliding_window": 4096}
    assert model_from_hugging_face(config, name="phi").features == ()


def test_an_indexer_may_be_shared_by_layers() -> None:
    own = model_from_hugging_face(FAMILIES["glm-5"]["config"], name="own").sparse_attention
    shared = model_from_hugging_face(FAMILIES["glm-5.2"]["config"], name="s").sparse_attention
    assert own is not None
    assert shared is not None
    assert (own.top_k, own.index_heads, own.index_head_dim, own.index_layers) == (2048, 32, 128, 78)
    assert shared.index_layers == 21


def test_multi_token_prediction_may_be_left_out() -> None:
    config = MIXED["deepseek-v3"]
    without = model_from_hugging_face(config, name="deepseek-v3", changes={"mtp_layers": 0})
    assert "mtp" not in without.features
    assert replace(without, mtp_layers=1) == model_from_hugging_face(config, name="deepseek-v3")


@pytest.mark.parametrize("name", MIXED)
def test_a_published_config_is_its_preset(name: str) -> None:
    """The sequence length apart, which a configuration does not tell."""
    preset = load_model(name)
    read = model_from_hugging_face(MIXED[name], name=name)
    assert _shape(replace(read, seq_length=preset.seq_length)) == _shape(preset)
    assert read.seq_length == 8192


def test_the_family_names_the_windowed_layers_if_no_list_does() -> None:
    for name, key in [("gpt-oss-20b", "layer_types"), ("llama-4-scout", "no_rope_layers")]:
        config = MIXED[name] | MIXED[name].get("text_config", {})
        del config[key]
        config.pop("text_config", None)
        read = model_from_hugging_face(config, name=name)
        assert read.window_layers == load_model(name).window_layers
    mistral = MIXED["mixtral-8x7b"] | {"sliding_window": 4096}
    read = model_from_hugging_face(mistral, name="windowed")
    assert (read.attention_window, read.window_layers, read.features[-1]) == (4096, 32, "window")


@pytest.mark.parametrize(
    ("name", "change", "field"),
    [
        ("qwen3-30b-a3b", {"swa_num_key_value_heads": 8}, "swa_num_key_value_heads"),
        ("qwen3-30b-a3b", {"sparse_attention_config": {"block": 64}}, "sparse_attention_config"),
        ("qwen3-30b-a3b", {"per_layer_experts": 4}, "per_layer_experts"),
        ("qwen3-30b-a3b", {"enable_moe_block": True}, "enable_moe_block"),
        ("qwen3-30b-a3b", {"is_encoder_decoder": True}, "is_encoder_decoder"),
        ("deepseek-v3", {"sliding_window": 512}, "sliding_window"),
        ("qwen3-30b-a3b", {"hidden_act": "gelu"}, "hidden_act"),
        ("qwen3-30b-a3b", {"hidden_act": "situ"}, "hidden_act"),
        ("qwen3-30b-a3b", {"moe_layer_freq": [1, 0]}, "moe_layer_freq"),
        ("qwen3-30b-a3b", {"num_experts_per_tok": None}, "num_experts_per_tok"),
        ("qwen3-30b-a3b", {"num_experts_per_tok": 129}, "experts.top_k"),
        ("deepseek-v3", {"index_topk": 2048}, "index_n_heads"),
        ("deepseek-v3", {"compress_ratios": [4, 128]}, "compress_ratios"),
        ("deepseek-v3", {"kv_lora_rank": None}, "kv_lora_rank"),
        ("gpt-oss-20b", {"layer_types": ["full_attention"]}, "layer_types"),
        ("gpt-oss-20b", {"layer_types": ["linear_attention"] * 24}, "linear_num_key_heads"),
        ("gpt-oss-20b", {"layer_types": ["conv"] * 24}, "layer_types"),
        ("nemotron-h-8b", {"hybrid_override_pattern": "M*E-" * 13}, "hybrid_override_pattern"),
        ("nemotron-h-8b", {"hybrid_override_pattern": "M*"}, "hybrid_override_pattern"),
        ("nemotron-h-8b", {"hybrid_override_pattern": "G" * 52}, "hybrid_override_pattern"),
        ("nemotron-3-nano-30b-a3b", {"attn_res_block_size": 12}, "attn_res_block_size"),
    ],
)
def test_layers_beyond_description_are_refused_by_their_key(
    name: str, change: dict[str, Any], field: str
) -> None:
    with pytest.raises((InvalidInput, InvalidInputs)) as refusal:
        model_from_hugging_face(MIXED[name] | change, name=name)
    problems = getattr(refusal.value, "problems", [refusal.value])
    assert [problem.field for problem in problems] == [f"model.{field}"]


def test_a_config_file_is_named_by_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "llama-2-70b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA_2_70B))
    assert _shape(read_model(folder / "config.json")) == _shape(load_model("llama-2-70b"))


def test_heads_may_be_wider_than_their_share_of_the_hidden_size() -> None:
    """The published config.json of Qwen3-0.6B; its 28 x 256 weights of query and key norms apart,
    the parameters are those of the published weights."""
    config = {
        "model_type": "qwen3",
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "max_position_embeddings": 40960,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    }
    model = model_from_hugging_face(config, name="qwen3-0.6b")
    assert (model.head_dim, model.query_size, model.kv_size) == (128, 2048, 1024)
    assert model.parameters + 28 * 256 == 596_049_920
    assert model_from_hugging_face(config | {"head_dim": 64}, name="usual").head_dim is None


def test_a_long_context_is_not_taken_for_the_training_sequence() -> None:
    assert model_from_hugging_face(QWEN2_7B, name="qwen").seq_length == 8192
    assert model_from_hugging_face(LLAMA_2_70B, name="llama").seq_length == 4096


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"num_local_experts": 8}, "model.num_experts_per_tok", "missing"),
        ({"hidden_size": None}, "model.hidden_size", "missing"),
        ({"num_hidden_layers": -1}, "model.num_hidden_layers", "not a positive whole number"),
        ({"vocab_size": "many"}, "model.vocab_size", "not a positive whole number"),
        ({"head_dim": 0}, "model.head_dim", "not a positive whole number"),
    ],
)
def test_what_is_not_understood_is_refused(change: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as refusal:
        model_from_hugging_face(LLAMA_2_70B | change, name="model")
    assert refusal.value.field == field


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(InvalidInputs, match="not divisible"):
        model_from_hugging_face(LLAMA_2_70B | {"num_key_value_heads": 7}, name="model")
