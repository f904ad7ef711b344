from __future__ import annotations

from dataclasses import replace

import pytest

from evaluators.frameworks.megatron_deepspeed.arguments import arguments, arguments_text
from search_spaces.catalog import load_machine, load_model
from search_spaces.errors import InvalidInput
from search_spaces.transformer import Transformer
from tests.evaluators.frameworks.strategies import BASE

FRONTIER = load_machine("frontier")
GPT = load_model("gpt-22b")
LLAMA = load_model("llama-2-7b")


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


def test_the_fork_is_not_told_of_query_groups() -> None:
    assert "--num-key-value-heads" in arguments_text(GPT, FRONTIER, BASE)
    assert "--num-key-value-heads" not in arguments_text(GPT, FRONTIER, BASE, "ornl")
