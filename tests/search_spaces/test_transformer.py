from __future__ import annotations

from dataclasses import replace

import pytest

from search_spaces.catalog import load_model, model_names
from search_spaces.fields import as_table, checked
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
def test_a_step_costs_six_operations_per_parameter_and_token(name: str) -> None:
    model = load_model(name)
    per_token = model.model_flops(1) / model.seq_length
    scores = 3 * sum(kind.count * kind.score_flops_per_token for kind in model.kinds)
    used = model.active_parameters - (not model.tied_embeddings) * model.embedding_parameters
    matrices = per_token - scores - 3 * model.mtp_flops_per_token
    assert matrices / (6 * used) == pytest.approx(1, rel=0.13)


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
    assert model.parameters - smaller.parameters == 72 * model.kinds[0].parameters
    assert model.with_layers(96) is model.with_layers(None) is model


@pytest.mark.parametrize(
    ("name", "total", "active", "embeddings"),
    [
        ("qwen3-30b-a3b", 30.5e9, 3.3e9, 2),
        ("qwen3-235b-a22b", 235e9, 22e9, 2),
        ("deepseek-v2-lite", 15.7e9, 2.4e9, 1),
        ("deepseek-v3", 671e9, 36.7e9, 1),
        ("kimi-k2", 1026e9, 32e9, 1),
        ("mixtral-8x7b", 46.7e9, 12.9e9, 2),
        ("mixtral-8x22b", 141e9, 39e9, 2),
        ("gpt-oss-20b", 20.91e9, 3.61e9, 1),
        ("gpt-oss-120b", 116.83e9, 5.13e9, 1),
        ("llama-4-scout", 109e9 - 0.87e9, 17.2e9, 2),  # 0.87e9 are of the vision encoder
        ("nemotron-3-nano-30b-a3b", 31.6e9, 3.6e9, 2),
        ("nemotron-h-8b", 8.1e9, 8.1e9, 2),
        ("llama-3.1-8b", 8.03e9, 8.03e9, 2),
        ("llama-3.1-70b", 70.6e9, 70.6e9, 2),
        ("llama-3.1-405b", 405.8e9, 405.8e9, 2),
    ],
)
def test_a_published_model_has_its_published_parameters(
    name: str, total: float, active: float, embeddings: int
) -> None:
    """`embeddings`: how many of the input embedding and the output layer the publisher counts among
    the active parameters, which are printed with two digits or three."""
    model = load_model(name)
    assert model.parameters == pytest.approx(total, rel=0.005)
    counted = model.active_parameters - (2 - embeddings) * model.embedding_parameters
    assert counted == pytest.approx(active, rel=0.022)


def test_two_publishers_count_no_embeddings() -> None:
    moonlight, glm = load_model("moonlight-16b-a3b"), load_model("glm-4.5")
    ends = 2 * moonlight.embedding_parameters
    assert moonlight.parameters - ends == pytest.approx(15.29e9, rel=0.001)
    assert moonlight.active_parameters - ends == pytest.approx(2.24e9, rel=0.005)
    ends = 2 * glm.embedding_parameters
    assert glm.parameters + glm.mtp_parameters - ends == pytest.approx(355e9, rel=0.001)
    assert glm.active_parameters - ends == pytest.approx(32e9, rel=0.005)


def test_kinds_of_layers_keep_their_share_in_a_model_with_fewer() -> None:
    """The dense first layers stay; windowed, Mamba and attention layers keep their share."""
    counts = {
        "deepseek-v3": ([3, 58], [3, 7]),
        "gpt-oss-120b": ([18, 18], [5, 5]),
        "nemotron-3-nano-30b-a3b": ([23, 6, 23], [4, 1, 5]),
    }
    for name, (whole, ten) in counts.items():
        model = load_model(name)
        assert [kind.count for kind in model.kinds] == whole
        assert [kind.count for kind in model.with_layers(10).kinds] == ten
    assert load_model("gpt-oss-120b").with_layers(1).attention_window is None
    only = load_model("deepseek-v3").with_layers(1)
    assert [(kind.count, kind.mlp) for kind in only.kinds] == [(1, "experts")]


def test_multi_token_prediction_counts_apart() -> None:
    """11.5e9 parameters of its own beside the 671e9 (DeepSeek-V3's README_WEIGHTS.md)."""
    model = load_model("deepseek-v3")
    assert model.mtp_parameters == pytest.approx(11.5e9, rel=0.01)
    without = replace(model, mtp_layers=0)
    assert (without.parameters, without.mtp_parameters) == (model.parameters, 0)
    assert model.model_flops(1) > without.model_flops(1)
    assert model.trained_parameters == model.parameters + model.mtp_parameters
    assert without.trained_parameters == model.parameters
    assert checked(Transformer, as_table(model), prefix="model") == model
    assert not {"mtp_layers", "mamba"} & set(as_table(load_model("llama-3-8b")))


@pytest.mark.parametrize(
    ("name", "flops_per_token"),
    [
        ("llama-3-8b", 5.14704e10),
        ("qwen3-30b-a3b", 2.30818e10),
        ("deepseek-v3", 2.60642e11),
        ("gpt-oss-120b", 3.27118e10),
        ("nemotron-3-nano-30b-a3b", 2.07858e10),
    ],
)
def test_flops_agree_with_those_of_published_measurements(
    name: str, flops_per_token: float
) -> None:
    """Those count the causal half of the scores, and multi-token prediction."""
    model = load_model(name)
    scores = sum(kind.count * kind.score_flops_per_token for kind in model.kinds)
    scores += model.mtp_layers * model.kinds[-1].score_flops_per_token
    causal = model.model_flops(1) / model.seq_length - 1.5 * scores
    assert causal == pytest.approx(flops_per_token, rel=0.003)


def test_attention_scores_what_it_reaches() -> None:
    """All tokens in each layer; those that an indexer selects; all tokens in the layers without
    linear attention; none but the scan where linear attention is everywhere else."""
    whole, sparse = (
        replace(load_model(name), seq_length=65_536) for name in ("deepseek-v3", "deepseek-v3.2")
    )
    assert sparse.score_flops_per_token == whole.score_flops_per_token * 2048 / 65_536
    assert sparse.indexer_flops_per_token > 2.0 * 61 * 65_536 * 64 * 128
    linear = load_model("kimi-linear-48b-a3b")
    full = replace(linear, linear_attention=None)
    assert linear.score_flops_per_token == full.score_flops_per_token * 7 / 27


def test_fewer_layers_keep_the_share_of_each_kind() -> None:
    for name in ("qwen3.5-27b", "granite-4.0-h-small", "falcon-h1-34b", "llama-4-maverick"):
        model = load_model(name)
        half = model.with_layers(model.num_layers // 2)
        assert [kind.count for kind in half.kinds] == [kind.count // 2 for kind in model.kinds]
        assert half.features == model.features
