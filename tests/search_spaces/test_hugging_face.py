from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from search_spaces.catalog import load_model, model_from_hugging_face, read_model
from search_spaces.errors import InvalidInput, InvalidInputs

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
RECORDED = Path(__file__).parent / "recorded" / "hugging-face-configs.json"
MIXED: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text())
"""Published configurations of models whose layers are not all dense and alike."""
SCOUT = MIXED["llama-4-scout"]["text_config"]


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


@pytest.mark.parametrize("name", MIXED)
def test_a_published_config_is_its_preset(name: str) -> None:
    """The sequence length apart, which a configuration does not tell."""
    preset = load_model(name)
    read = model_from_hugging_face(MIXED[name], name=name)
    assert replace(read, seq_length=preset.seq_length) == preset
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
        ("qwen3-30b-a3b", {"decoder_sparse_step": 2}, "decoder_sparse_step"),
        ("qwen3-30b-a3b", {"mlp_only_layers": [0]}, "mlp_only_layers"),
        ("qwen3-30b-a3b", {"num_experts_per_tok": None}, "num_experts_per_tok"),
        ("qwen3-30b-a3b", {"num_experts_per_tok": 129}, "experts.top_k"),
        ("deepseek-v3", {"index_topk": 2048}, "index_topk"),
        ("deepseek-v3", {"moe_layer_freq": 2}, "moe_layer_freq"),
        ("deepseek-v3", {"kv_lora_rank": None}, "kv_lora_rank"),
        ("gpt-oss-20b", {"layer_types": ["full_attention"]}, "layer_types"),
        ("gpt-oss-20b", {"layer_types": ["linear_attention"] * 24}, "layer_types"),
        ("llama-4-scout", {"text_config": SCOUT | {"moe_layers": [1, 3]}}, "moe_layers"),
        (
            "llama-4-scout",
            {"text_config": SCOUT | {"interleave_moe_layer_step": 2}},
            "interleave_moe_layer_step",
        ),
        ("nemotron-h-8b", {"hybrid_override_pattern": "M*E-" * 13}, "hybrid_override_pattern"),
        ("nemotron-h-8b", {"hybrid_override_pattern": "M*"}, "hybrid_override_pattern"),
        ("nemotron-h-8b", {"hybrid_override_pattern": "G" * 52}, "hybrid_override_pattern"),
        ("nemotron-h-8b", {"num_nextn_predict_layers": 1}, "num_nextn_predict_layers"),
        ("nemotron-3-nano-30b-a3b", {"moe_latent_size": 1024}, "moe_latent_size"),
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
    assert read_model(folder / "config.json") == load_model("llama-2-70b")


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
        ({"num_local_experts": 8}, "model.num_local_experts", "mixture of experts"),
        ({"model_type": "mamba"}, "model.model_type", "not known"),
        ({"model_type": None}, "model.model_type", "not known"),
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
