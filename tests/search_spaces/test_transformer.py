from __future__ import annotations

import pytest

from search_spaces.catalog import load_model, model_names
from search_spaces.transformer import Transformer


@pytest.mark.parametrize("name", ["gpt-1.4b", "gpt-22b", "gpt-175b", "gpt-1t"])
def test_flops_follow_the_published_formulas(name: str) -> None:
    model = load_model(name)
    batch, sequence, layers, hidden = 640, model.seq_length, model.num_layers, model.hidden_size
    vocabulary = model.vocab_size
    common = batch * sequence * layers * hidden**2
    model_flops = 72 * common * (1 + sequence / (6 * hidden) + vocabulary / (12 * layers * hidden))
    assert model.model_flops(batch) == pytest.approx(model_flops)
    # Narayanan et al. 2021 recompute the logits too; here only the layers are recomputed.
    hardware = 96 * common * (1 + sequence / (6 * hidden) + vocabulary / (16 * layers * hidden))
    assert model.hardware_flops(batch, "full") == pytest.approx(hardware)
    assert model.hardware_flops(batch, "none") == model.model_flops(batch)


def test_selective_recomputation_costs_the_attention_scores() -> None:
    model = load_model("gpt-22b")
    scores = 4 * model.seq_length * model.hidden_size * model.num_layers * model.seq_length
    extra = model.hardware_flops(1, "selective") - model.model_flops(1)
    assert extra == pytest.approx(scores)


@pytest.mark.parametrize("name", model_names())
def test_a_step_costs_about_six_operations_for_each_parameter_and_token(name: str) -> None:
    model = load_model(name)
    per_token = model.model_flops(1) / model.seq_length
    scores = 12 * model.num_layers * model.seq_length * model.query_size
    assert (per_token - scores) / (6 * model.parameters) == pytest.approx(1, rel=0.13)


def test_gpt_3_175b_has_its_published_parameters() -> None:
    gpt_3 = Transformer.gpt(
        "gpt-3", num_layers=96, hidden_size=12288, num_attention_heads=96, vocab_size=50257
    )
    assert gpt_3.parameters == pytest.approx(174.6e9, rel=0.001)
    assert (gpt_3.head_width, gpt_3.kv_size) == (128, 12288)


def test_gpt_2_has_its_published_parameters() -> None:
    gpt_2 = Transformer.gpt(
        "gpt-2",
        num_layers=12,
        hidden_size=768,
        num_attention_heads=12,
        seq_length=1024,
        vocab_size=50257,
    )
    assert gpt_2.parameters == 124_439_808


def test_a_model_with_fewer_layers_says_so() -> None:
    model = load_model("gpt-175b")
    smaller = model.with_layers(24)
    assert smaller.name == "gpt-175b with 24 of 96 layers"
    assert model.parameters - smaller.parameters == 72 * model.layer_parameters
    assert model.with_layers(96) is model.with_layers(None) is model
