from __future__ import annotations

import pytest

from server.runner.planning import protocol_of
from server.store import Store
from tests.server.asking import STRATEGY, created, with_trials


@pytest.mark.parametrize(
    ("accumulation", "purpose", "measured", "longer"),
    [
        (64, "search", (4, 8), 1.0),
        (64, "confirmation", (64,), 64 / 12),
        (8, "confirmation", (8,), 1.0),
    ],
)
def test_a_confirmation_has_time_for_all_of_its_micro_batches(
    store: Store, accumulation: int, purpose: str, measured: tuple[int, ...], longer: float
) -> None:
    campaign = created(store)
    strategy = STRATEGY.model_copy(update={"gradient_accumulation_steps": accumulation})
    [trial] = with_trials(store, campaign, 1)
    asked = protocol_of(
        campaign, trial.model_copy(update={"strategy": strategy, "purpose": purpose})
    )
    assert asked.accumulations == measured
    limit = campaign.request.protocol.time_limit_s
    assert asked.time_limit_s == pytest.approx(longer * limit)
