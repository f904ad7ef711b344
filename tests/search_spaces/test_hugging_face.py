from __future__ import annotations

import json
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
