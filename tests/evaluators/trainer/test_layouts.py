"""Every layout computes the same training run.

Of the layouts of dense models that always run, each pair of values of two dimensions occurs in one;
with AUTOTUNE_ALL_LAYOUTS=1 all of them run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from search_spaces.layers import Experts, LatentAttention
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.evaluators.local.trials import GPT, LLAMA, request, strategy
from tests.evaluators.trainer.forked_ranks import ForkedRanks, Trained
from tests.patience import PATIENCE_S

STEPS = 3
TOLERANCE = 1e-5
OF_EXPERTS = {"SGD": TOLERANCE, "AdamW": 1e-4}
"""AdamW does not see gradients of experts that have the wrong scale. It divides a gradient by its
own size, so that one near 0 steps by its rounding error: one differs by 5e-5; with SGD, by 5e-7.
"""

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
MODELS = {model.name: model for model in (GPT, LLAMA, MIXTURE, LATENT)}

PAIRWISE = """
gpt 2 zero=2 selective
gpt 2 zero=2 full flash
gpt 2 zero=3 full
gpt 2 zero=3 mbs=4
gpt 4 pp=4 mbs=4
gpt 4 tp=2 mbs=4 zero=1 full
gpt 4 tp=2 pp=2 full
gpt 4 tp=4
gpt 4 tp=4 mbs=4 selective flash
gpt 4 tp=4 mbs=4 full flash
llama 4 pp=2 zero=1 flash
llama 4 pp=2 mbs=4 zero=1 selective
llama 4 pp=4 selective
llama 4 pp=4 mbs=4 zero=1 full flash
gpt 3 pp=3 mbs=2 zero=1
llama 3 pp=3 selective
llama 4 tp=2 mbs=4 zero=2 flash
llama 4 tp=2 mbs=4 zero=3 selective flash
gpt 4 cp=4 mbs=4 zero=2
gpt 4 tp=2 cp=2 full
llama 4 cp=2 zero=3 flash
llama 4 pp=2 cp=2 mbs=4 zero=1 selective
""".strip().splitlines()
"""Model, ranks, and what the strategy has; GAS follows from the global batch. Three stages have
two, one and one of the four layers."""
FURTHER = """
gpt 1 mbs=8
gpt 1 mbs=2 full
gpt 1 mbs=4 selective flash
gpt 2 tp=2 mbs=2 selective
gpt 4 tp=4 mbs=8
gpt 2 pp=2
gpt 2 pp=2 mbs=2 zero=1 full
gpt 4 pp=4 mbs=2
gpt 2 mbs=4
gpt 4
gpt 4 zero=1
gpt 4 mbs=2 zero=2
gpt 4 zero=3
gpt 4 tp=2 mbs=2 zero=1
gpt 4 tp=2 mbs=4 zero=2 full
gpt 4 tp=2 mbs=4 zero=3
gpt 4 tp=2 pp=2 mbs=4
gpt 4 tp=2 pp=2 mbs=2 zero=1
gpt 4 pp=2 mbs=2 zero=1 flash
gpt 8 tp=2 pp=2 mbs=2 zero=1 full
llama 4 tp=2 pp=2 mbs=4 full
llama 4 pp=4 mbs=2 zero=1 flash
llama 4 tp=2 mbs=4 zero=3 full
gpt 8 tp=2 cp=2 mbs=4 full
llama 8 pp=2 cp=2 mbs=4 zero=1
""".strip().splitlines()
EXPERTS = """
mixture 2 ep=2
mixture 2 ep=2 zero=3
mixture 4 ep=2 cp=2 zero=2
mixture 4 tp=2 ep=2 zero=1
mixture 4 pp=2 ep=2 cp=2
mixture 2 ep=2 cp=2 balanced
latent 2 tp=2 full
latent 2 cp=2 zero=1 flash
""".strip().splitlines()
FURTHER_EXPERTS = [
    *(
        f"mixture 4 ep={ep} cp={cp} zero={stage}"
        for ep, cp, stage in product((1, 2, 4), (1, 2), (0, 1, 2, 3))
    ),
    *(
        f"mixture 4 tp=2 ep={ep} zero={stage}"
        for ep, stage in product((1, 2), (0, 1, 2, 3))
        if (ep, stage) != (2, 3)
    ),
    # With two experts in ZeRO 1 it is refused: its first stage has none.
    *(f"mixture 4 pp=2 {experts}" for experts in ("ep=1 zero=0", "ep=1 zero=1", "ep=2 zero=0")),
    *(
        f"latent 4 cp=2 ep=4 zero={stage} {more}"
        for stage, more in product((0, 1, 2, 3), ("full", "flash"))
    ),
    "latent 4 tp=2 pp=2 zero=1",
]
ALL = os.environ.get("AUTOTUNE_ALL_LAYOUTS") == "1"
LAYOUTS = [*PAIRWISE, *EXPERTS, *(FURTHER if ALL else []), *(FURTHER_EXPERTS if ALL else [])]

NUMBERS = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "cp": "context_parallel",
    "ep": "expert_parallel",
    "mbs": "micro_batch_size",
    "zero": "zero_stage",
}
SWITCHES: Mapping[str, Mapping[str, Any]] = {
    "selective": {"activation_checkpointing": "selective"},
    "full": {"activation_checkpointing": "full"},
    "flash": {"flash_attention": True},
    "bf16": {"precision": "bf16"},
    "balanced": {"settings": (("routing", "balanced"),)},
}


@dataclass(frozen=True)
class Layout:
    model: Transformer
    ranks: int
    strategy: Strategy

    @classmethod
    def of(cls, text: str) -> Layout:
        name, ranks, *words = text.split()
        model, chosen = MODELS[name], dict[str, Any]()
        for word in words:
            key, _, number = word.partition("=")
            chosen |= {NUMBERS[key]: int(number)} if number else SWITCHES[word]
        plain = strategy(**chosen, gradient_accumulation_steps=1)
        samples = plain.global_batch_size(int(ranks))
        return cls(
            model,
            int(ranks),
            replace(
                plain,
                gradient_accumulation_steps=(4 if model.experts else 8) // samples,
                expert_tensor_parallel=plain.tensor_parallel if model.experts else 1,
            ),
        )

    @property
    def values(self) -> Mapping[str, object]:
        """The value of each dimension; of a micro-batch, whether it has more than one sample."""
        names = (*NUMBERS.values(), "activation_checkpointing", "flash_attention")
        values = {name: getattr(self.strategy, name) for name in names}
        return values | {"model": self.model.name, "micro_batch_size": values[NUMBERS["mbs"]] > 1}


Train = Callable[..., Trained]


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Train]:
    """Trains a layout, one of experts with each optimizer."""
    with ForkedRanks(tmp_path_factory.mktemp("ranks")) as ranks:

        def trained(text: str, **others: Any) -> Trained:
            layout = Layout.of(text)
            trial_request = request(
                Path(), layout.strategy, ranks=layout.ranks, transformer=layout.model
            )
            optimizers = tuple(OF_EXPERTS) if layout.model.experts else ("AdamW",)
            return ranks.train(trial_request, steps=STEPS, **{"optimizers": optimizers} | others)

        yield trained


@pytest.fixture(scope="module")
def alone(train: Train) -> Train:
    """Trains a layout's model, with its routing, on one rank, one sample after another."""
    trained = cache(train)
    return lambda text: trained(f"{text.split()[0]} 1{' balanced' * ('balanced' in text)}")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_has_the_same_losses(train: Train, alone: Train, layout: str) -> None:
    expected = alone(layout).losses
    for optimizer, losses in train(layout).losses.items():
        near = OF_EXPERTS[optimizer] if len(expected) > 1 else TOLERANCE
        assert losses == pytest.approx(expected[optimizer], abs=near), optimizer


def test_each_pair_of_values_is_in_a_layout_that_always_runs() -> None:
    def pairs(layouts: Sequence[str]) -> set[tuple[tuple[str, object], ...]]:
        found = (Layout.of(layout).values.items() for layout in layouts)
        return {pair for values in found for pair in combinations(values, 2)}

    assert pairs(FURTHER) <= pairs(PAIRWISE)


def test_ranks_that_do_not_answer_fail_within_their_limit(tmp_path: Path) -> None:
    trial_request = request(Path(), strategy(), ranks=1, transformer=MIXTURE)
    with ForkedRanks(tmp_path) as ranks:
        with pytest.raises(AssertionError, match="no answer within 0 s"):
            ranks.train(trial_request, steps=STEPS, limit_s=0.0)
        assert ranks.process.wait(PATIENCE_S) < 0


def test_gradients_of_experts_that_are_twice_as_large_are_seen(train: Train, alone: Train) -> None:
    layout = "mixture 2 ep=2 zero=1"
    [planted] = train(layout, optimizers=["SGD"], plant=2.0).losses.values()
    expected = alone(layout).losses["SGD"]
    assert max(abs(a - b) for a, b in zip(planted, expected, strict=True)) > 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns_and_has_the_predicted_parameters(alone: Train, name: str) -> None:
    """A step that changes nothing, and a router that is not asked, would be seen."""
    trained = alone(name)
    losses = trained.losses["AdamW"]
    assert len(losses) == STEPS
    assert min(losses) < losses[0] - 0.01
    assert trained.parameters == MODELS[name].parameters
    others = [alone(other).losses["AdamW"] for other in MODELS if other != name]
    if name == "mixture":
        others.append(alone("mixture 1 balanced").losses["AdamW"])
    assert all(losses != pytest.approx(other, abs=1e-5) for other in others)


@pytest.mark.parametrize(
    "layout",
    [
        "gpt 4 tp=2 mbs=4 bf16",
        "gpt 4 tp=2 pp=2 mbs=4 bf16",
        "gpt 4 pp=2 mbs=4 zero=1 bf16",
        "gpt 2 mbs=4 zero=2 bf16",
        "gpt 2 mbs=4 zero=3 bf16",
        "mixture 2 ep=2 zero=0 bf16",
        "mixture 2 ep=2 zero=1 bf16",
    ],
)
def test_bf16_stays_near_fp32(train: Train, alone: Train, layout: str) -> None:
    losses = train(layout, optimizers=["AdamW"]).losses["AdamW"]
    near = 0.002 if Layout.of(layout).model.experts else 0.001
    assert losses == pytest.approx(alone(layout).losses["AdamW"], abs=near)
