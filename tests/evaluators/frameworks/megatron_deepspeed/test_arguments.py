from __future__ import annotations

from dataclasses import replace

import pytest

from evaluators.frameworks.megatron_deepspeed.arguments import (
    FLASH_ATTENTION_2,
    arguments,
    arguments_text,
)
from search_spaces.catalog import load_machine, load_model
from search_spaces.errors import InvalidInput
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.evaluators.frameworks.readers import megatron_parser, transformer_of
from tests.evaluators.frameworks.strategies import BASE, STRATEGIES

FRONTIER = load_machine("frontier")
GPT = load_model("gpt-22b")
LLAMA = load_model("llama-2-7b")


def flat(model: str, strategy: str) -> list[str]:
    rendered = arguments(load_model(model), FRONTIER, STRATEGIES[strategy])
    return [word for argument in rendered for word in argument]


@pytest.mark.parametrize("model", ["gpt-22b", "llama-2-7b", "llama-3-70b"])
def test_arguments_parse_back_to_the_same_model(model: str) -> None:
    transformer = load_model(model)
    words = flat(model, "the defaults")
    parsed = transformer_of(words, name=transformer.name, vocab_size=transformer.vocab_size)
    assert parsed == transformer


@pytest.mark.parametrize(
    ("model", "norm", "of_llama"),
    [("llama-2-7b", "rmsnorm", True), ("gpt-22b", "layernorm", False)],
)
def test_norm_positions_and_biases(model: str, norm: str, *, of_llama: bool) -> None:
    args = megatron_parser().parse_args(flat(model, "the defaults"))
    assert args.normalization == norm
    assert args.use_rotary_position_embeddings is of_llama
    assert args.add_bias_linear is not of_llama


@pytest.mark.parametrize(
    ("strategy", "without_pipeline"),
    [("ZeRO-2 with tensor parallelism", True), ("ZeRO-0 in fp32", False), ("the defaults", False)],
)
def test_zero_2_and_3_leave_the_pipeline_engine(strategy: str, without_pipeline: bool) -> None:
    args = megatron_parser().parse_args(flat("gpt-22b", strategy))
    assert args.deepspeed
    assert args.no_pipeline_parallel is without_pipeline


def test_fp32_runs_without_flash_attention() -> None:
    full_precision = replace(BASE, precision="fp32", flash_attention=True)
    rendered = arguments(GPT, FRONTIER, full_precision)
    assert ("--use-flash-attn-v2",) not in rendered


def test_interleaving_runs_on_megatrons_own_engine() -> None:
    args = megatron_parser().parse_args(flat("gpt-22b", "interleaved"))
    assert not args.deepspeed
    assert args.use_distributed_optimizer
    assert args.num_layers_per_virtual_pipeline_stage == 48 // (4 * 3)


@pytest.mark.parametrize(
    ("strategy", "field"),
    [
        (replace(BASE, pipeline_parallel=2, virtual_stages=2), "virtual_stages"),
        (replace(BASE, virtual_stages=2, zero_stage=2), "zero_stage"),
    ],
)
def test_what_it_cannot_run_is_refused(strategy: Strategy, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        arguments(GPT, FRONTIER, strategy)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("transformer", "field"),
    [(LLAMA, "gated_mlp"), (replace(GPT, num_query_groups=8), "num_query_groups")],
)
def test_the_fork_refuses_a_model_that_it_has_no_words_for(
    transformer: Transformer, field: str
) -> None:
    with pytest.raises(InvalidInput, match=r"or megatron\.variant 'main'") as refused:
        arguments(transformer, FRONTIER, BASE, "ornl")
    assert refused.value.field == field
    assert arguments(transformer, FRONTIER, BASE, "main")


def test_each_line_has_its_own_name_for_flash_attention() -> None:
    chosen = arguments(GPT, FRONTIER, BASE, "main"), arguments(GPT, FRONTIER, BASE, "ornl")
    flash = [{a[0] for a in given if "flash" in a[0]} for given in chosen]
    assert flash == [{"--use-flash-attn-v2"}, {"--use-flash-attn"}]


@pytest.mark.parametrize("model", ["gpt-1.4b", "gpt-1t"])
def test_flash_attention_1_has_no_kernel_for_odd_or_wide_heads(model: str) -> None:
    """86 and 200 wide."""
    transformer, plain = load_model(model), replace(BASE, flash_attention=False)
    with pytest.raises(InvalidInput, match="multiple of 8") as refused:
        arguments(transformer, FRONTIER, BASE, "ornl")
    assert refused.value.field == "flash_attention"
    assert "flash" not in arguments_text(transformer, FRONTIER, plain, "ornl")
    newer = arguments(transformer, FRONTIER, BASE, "ornl", flash_attention=FLASH_ATTENTION_2)
    assert (FLASH_ATTENTION_2,) in newer


def test_the_fork_is_not_told_of_query_groups() -> None:
    assert "--num-key-value-heads" in arguments_text(GPT, FRONTIER, BASE)
    assert "--num-key-value-heads" not in arguments_text(GPT, FRONTIER, BASE, "ornl")
