"""Models with experts, latent attention and windows compute the same training run in every layout.

A few layouts always run; with AUTOTUNE_ALL_LAYOUTS=1 all of them do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from search_spaces.transformer import Experts, LatentAttention, Transformer
from tests.evaluators.local.trials import LLAMA, request, strategy
from tests.evaluators.trainer.forked_ranks import ForkedRanks, Trained
from tests.patience import PATIENCE_S

STEPS = 5
GLOBAL_BATCH = 4
TOLERANCE = {"SGD": 1e-5, "AdamW": 1e-4}
"""Adam divides a gradient by its own size, so that one near 0 steps by its rounding error: of all
layouts one differs by 5e-5 with it, and by 5e-7 with SGD."""

MIXTURE = replace(
    LLAMA,
    name="mixture",
    num_layers=2,
    gated_mlp=False,
    experts=Experts(
        num_experts=8, top_k=2, ffn_hidden_size=32, shared_ffn_hidden_size=16, dense_layers=1
    ),
)
LATENT = replace(
    MIXTURE,
    name="latent",
    gated_mlp=True,
    num_query_groups=4,
    latent_attention=LatentAttention(
        kv_rank=12, q_rank=10, qk_head_dim=8, rope_head_dim=4, v_head_dim=6
    ),
    attention_window=5,
    window_layers=1,
)

Layout = tuple[Transformer, int, dict[str, Any]]
"""Model, ranks, and what the strategy has; GAS follows from the global batch."""

BALANCED = (("routing", "balanced"),)

ALWAYS: list[Layout] = [
    (MIXTURE, 2, {"expert_parallel": 2}),
    (MIXTURE, 2, {"expert_parallel": 2, "zero_stage": 3}),
    (MIXTURE, 4, {"expert_parallel": 2, "context_parallel": 2, "zero_stage": 2}),
    (MIXTURE, 4, {"tensor_parallel": 2, "expert_parallel": 2, "zero_stage": 1}),
    (MIXTURE, 4, {"pipeline_parallel": 2, "expert_parallel": 2, "context_parallel": 2}),
    (MIXTURE, 2, {"expert_parallel": 2, "context_parallel": 2, "settings": BALANCED}),
    (LATENT, 2, {"tensor_parallel": 2, "activation_checkpointing": "full"}),
    (LATENT, 2, {"context_parallel": 2, "zero_stage": 1, "flash_attention": True}),
]
FURTHER: list[Layout] = [
    *(
        (MIXTURE, 4, {"expert_parallel": ep, "context_parallel": cp, "zero_stage": stage})
        for ep, cp, stage in product((1, 2, 4), (1, 2), (0, 1, 2, 3))
    ),
    *(
        (MIXTURE, 4, {"tensor_parallel": 2, "expert_parallel": ep, "zero_stage": stage})
        for ep, stage in product((1, 2), (0, 1, 2, 3))
        if (ep, stage) != (2, 3)
    ),
    *(
        (MIXTURE, 4, {"pipeline_parallel": 2, "expert_parallel": ep, "zero_stage": stage})
        for ep, stage in product((1, 2), (0, 1))
        if (ep, stage) != (2, 1)  # refused: its first stage has no experts
    ),
    *(
        (LATENT, 4, {"context_parallel": 2, "expert_parallel": 4, "zero_stage": stage} | more)
        for stage in (0, 1, 2, 3)
        for more in ({"activation_checkpointing": "full"}, {"flash_attention": True})
    ),
    (LATENT, 4, {"tensor_parallel": 2, "pipeline_parallel": 2, "zero_stage": 1}),
]
LAYOUTS = ALWAYS + (FURTHER if os.environ.get("AUTOTUNE_ALL_LAYOUTS") == "1" else [])


def name_of(layout: Layout) -> str:
    model, ranks, chosen = layout
    return "-".join(
        [model.name, str(ranks), *(f"{name}={value}" for name, value in chosen.items())]
    )


Train = Callable[..., Trained]


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Train]:
    """Trains a layout, with each optimizer."""
    with ForkedRanks(tmp_path_factory.mktemp("ranks")) as ranks:

        def trained(layout: Layout, **others: Any) -> Trained:
            model, world_size, chosen = layout
            tensor = chosen.get("tensor_parallel", 1)
            parts = {"pipeline_parallel": 1, "context_parallel": 1} | chosen
            one_replica = tensor * parts["pipeline_parallel"] * parts["context_parallel"]
            values = {
                "gradient_accumulation_steps": GLOBAL_BATCH * one_replica // world_size,
                "expert_tensor_parallel": tensor,
            }
            asked = request(
                Path(), strategy(**values | chosen), ranks=world_size, transformer=model
            )
            return ranks.train(asked, steps=STEPS, **others)

        yield trained


@pytest.fixture(scope="module")
def alone(train: Train) -> Callable[[Layout], Trained]:
    """A layout's model and routing on one rank."""

    @cache
    def trained(model: Transformer, settings: tuple[tuple[str, str], ...]) -> Trained:
        return train((model, 1, {"settings": settings}))

    return lambda layout: trained(layout[0], layout[2].get("settings", ()))


@pytest.mark.parametrize("layout", LAYOUTS, ids=name_of)
def test_every_layout_has_the_same_losses(
    train: Train, alone: Callable[[Layout], Trained], layout: Layout
) -> None:
    expected = alone(layout).losses
    for optimizer, losses in train(layout).losses.items():
        assert losses == pytest.approx(expected[optimizer], abs=TOLERANCE[optimizer]), optimizer


def test_ranks_that_do_not_answer_fail_within_their_limit(tmp_path: Path) -> None:
    asked = request(Path(), strategy(), ranks=1, transformer=MIXTURE)
    with ForkedRanks(tmp_path) as ranks:
        with pytest.raises(AssertionError, match="no answer within 0 s"):
            ranks.train(asked, steps=STEPS, limit_s=0.0)
        assert ranks.process.wait(PATIENCE_S) < 0


def test_gradients_of_experts_that_are_twice_as_large_are_seen(
    train: Train, alone: Callable[[Layout], Trained]
) -> None:
    layout = (MIXTURE, 2, {"expert_parallel": 2, "zero_stage": 1})
    [planted] = train(layout, optimizers=["SGD"], plant=2.0).losses.values()
    expected = alone(layout).losses["SGD"]
    assert max(abs(a - b) for a, b in zip(planted, expected, strict=True)) > 1e-3


def test_the_models_learn(alone: Callable[[Layout], Trained]) -> None:
    """So that a step which changes nothing would be seen, and a router that is not asked."""
    mixture, latent = alone((MIXTURE, 1, {})).losses, alone((LATENT, 1, {})).losses
    assert mixture["AdamW"][-1] < mixture["AdamW"][0] - 0.01
    assert latent["AdamW"][-1] < latent["AdamW"][0] - 0.01
    balanced = alone((MIXTURE, 1, {"settings": BALANCED})).losses
    assert balanced["SGD"] != pytest.approx(mixture["SGD"], abs=1e-5)


@pytest.mark.parametrize("model", [MIXTURE, LATENT], ids=lambda model: model.name)
def test_the_models_have_the_parameters_that_predictions_are_made_of(
    alone: Callable[[Layout], Trained], model: Transformer
) -> None:
    assert alone((model, 1, {})).parameters == model.parameters


@pytest.mark.parametrize("zero_stage", [0, 1])
def test_bf16_stays_near_fp32(
    train: Train, alone: Callable[[Layout], Trained], zero_stage: int
) -> None:
    layout = (MIXTURE, 2, {"expert_parallel": 2, "precision": "bf16", "zero_stage": zero_stage})
    losses = train(layout, optimizers=["AdamW"]).losses["AdamW"]
    assert losses == pytest.approx(alone(layout).losses["AdamW"], abs=0.002)
