"""Traits of trainers, by name."""

from __future__ import annotations

import pytest

from search_spaces.errors import InvalidInputs
from search_spaces.program import USUAL_STATES
from search_spaces.traits import Trait, with_traits


@pytest.mark.parametrize(
    ("name", "value", "field", "number"),
    [
        ("dispatcher", "alltoall", "waits_for_counts", 1.0),
        ("dispatcher", "HybridEP", "waits_for_counts", 0.0),
        ("routing", "natural", "uneven_routing", 2.0),
        ("balanced_routing", True, "uneven_routing", 0.0),
        ("balanced_routing", "off", "uneven_routing", 2.0),
        ("cuda_graphs", "full_iteration", "cuda_graphs", 1.0),
        ("cuda_graphs", "moe_router,moe_preprocess", "cuda_graphs", 0.25),
        ("cuda_graphs", "attn,moe_router", "cuda_graphs", 0.5),
        ("cuda_graphs", "0.4", "cuda_graphs", 0.4),
        ("cuda_graphs", False, "cuda_graphs", 0.0),
        ("offloaded_inputs", 1, "offloaded_inputs", 1.0),
        ("offloaded_states", "0.5", "offloaded_states", 0.5),
        ("mlp_tokens", 16384, "mlp_tokens", 16384.0),
        ("gradient_bytes", "2", "gradient_bytes", 2.0),
    ],
)
def test_values(name: str, value: Trait, field: str, number: float) -> None:
    assert getattr(with_traits(USUAL_STATES, {name: value}), field) == number


def test_all_faults_are_reported() -> None:
    wrong: dict[str, Trait] = {
        "dispatchers": "deepep",
        "routing": "even",
        "cuda_graphs": "2",
        "loss_tokens": True,
    }
    with pytest.raises(InvalidInputs) as refusal:
        with_traits(USUAL_STATES, wrong)
    assert [each.field for each in refusal.value.problems] == [f"traits.{name}" for name in wrong]
    assert "did you mean dispatcher?" in str(refusal.value)
    assert "balanced, natural" in str(refusal.value)
