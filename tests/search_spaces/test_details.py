"""What a trainer needs to build the same model, from published configurations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from search_spaces.catalog import load_model, model_from_hugging_face
from search_spaces.errors import InvalidInputs

SHAPE: dict[str, Any] = {
    "num_hidden_layers": 4,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "intermediate_size": 1024,
    "max_position_embeddings": 4096,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 256}
LATENT = {
    "kv_lora_rank": 64,
    "q_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "llama-3.1-405b": {
        "model_type": "llama",
        "attention_bias": False,
        "rms_norm_eps": 1e-05,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
    },
    "qwen3-235b-a22b": {
        "model_type": "qwen3_moe",
        "num_experts": 128,
        "attention_bias": False,
        "norm_topk_prob": True,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "router_aux_loss_coef": 0.001,
    },
    "mixtral-8x7b": {
        "model_type": "mixtral",
        "num_local_experts": 8,
        "rms_norm_eps": 1e-05,
        "rope_theta": 1000000.0,
        "router_aux_loss_coef": 0.02,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3",
        "n_routed_experts": 256,
        **LATENT,
        "attention_bias": False,
        "n_group": 8,
        "norm_topk_prob": True,
        "rms_norm_eps": 1e-06,
        "rope_scaling": {
            "beta_fast": 32,
            "beta_slow": 1,
            "factor": 40,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 4096,
            "type": "yarn",
        },
        "rope_theta": 10000,
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "topk_group": 4,
        "topk_method": "noaux_tc",
    },
    "moonlight-16b-a3b": {
        "model_type": "deepseek_v3",
        "n_routed_experts": 64,
        **LATENT,
        "attention_bias": False,
        "aux_loss_alpha": 0.001,
        "n_group": 1,
        "norm_topk_prob": True,
        "rms_norm_eps": 1e-05,
        "rope_theta": 50000.0,
        "routed_scaling_factor": 2.446,
        "scoring_func": "sigmoid",
        "seq_aux": True,
        "topk_group": 1,
        "topk_method": "noaux_tc",
    },
    "gpt-oss-120b": {
        "model_type": "gpt_oss",
        "num_local_experts": 128,
        "attention_bias": True,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "rope_type": "yarn",
            "truncate": False,
        },
        "rope_theta": 150000,
        "router_aux_loss_coef": 0.9,
    },
}
"""Preset -> what the model's published config.json says besides its shape."""

IN_A_REPORT = {
    "deepseek-v3": {"balance_loss": 0.0001, "balance_loss_of": "sequence"},
}
"""What a preset has from a report, and no configuration says."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_has_the_details_of_its_configuration(name: str) -> None:
    config = SHAPE | PUBLISHED[name]
    config |= EXPERTS if any("experts" in key for key in config) else {}
    read = model_from_hugging_face(config, name=name).details
    assert read is not None
    assert replace(read, **IN_A_REPORT.get(name, {})) == load_model(name).details  # type: ignore[arg-type]


def test_another_scaling_of_positions_is_not_taken_for_none() -> None:
    config = SHAPE | {"model_type": "phi3", "rope_theta": 1e4}
    scaled = config | {"rope_scaling": {"type": "longrope", "short_factor": [1.0]}}
    for each, scaling in ((config, "none"), (scaled, "other")):
        details = model_from_hugging_face(each, name="phi").details
        assert details is not None
        assert details.rotary_scaling == scaling


def test_what_a_family_does_not_say_is_not_known() -> None:
    details = model_from_hugging_face(SHAPE | {"model_type": "new"}, name="new").details
    assert details is None


def test_a_wrong_detail_is_refused_by_its_name() -> None:
    config = {**SHAPE, "model_type": "llama", "rope_theta": -1.0}
    with pytest.raises(InvalidInputs) as refused:
        model_from_hugging_face(config, name="llama")
    assert [each.field for each in refused.value.problems] == ["model.details.rotary_base"]
