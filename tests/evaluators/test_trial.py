from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from autotune.measurement.metrics import AccumulationMeasurement
from autotune.schemas.choices import TrialState
from evaluators.trial import TrialOutcome

FULL = TrialOutcome(
    status=TrialState.OK,
    started_at=datetime(2025, 11, 20, 12, 30, tzinfo=UTC),
    duration_s=12.5,
    simulated=False,
    measurements=(
        AccumulationMeasurement(gradient_accumulation_steps=2, iteration_times_s=(0.5, 0.25)),
        AccumulationMeasurement(gradient_accumulation_steps=4, iteration_times_s=(1.0, 0.75)),
    ),
    peak_memory_gib=(1.5, 1.25),
    loss=10.8,
    log_tail="iteration 1\niteration 2",
    log_path="/trials/7/trial.log",
    host="node17",
    versions={"torch": "2.13.0", "deepspeed": "0.19.8"},
)

BARE = TrialOutcome(
    status=TrialState.OOM,
    started_at=datetime(2025, 11, 20, 12, 30, tzinfo=UTC),
    duration_s=3.0,
    simulated=True,
    error="out of memory",
)


@pytest.mark.parametrize("outcome", [FULL, BARE], ids=["full", "bare"])
def test_an_outcome_survives_its_result_file(outcome: TrialOutcome) -> None:
    restored = TrialOutcome.from_dict(json.loads(json.dumps(outcome.as_dict())))
    assert restored == outcome
    assert restored.started_at.utcoffset() is not None


@pytest.mark.parametrize("status", sorted(set(TrialState) - {TrialState.PENDING}))
def test_every_status_survives(status: TrialState) -> None:
    data = BARE.as_dict() | {"status": status.value}
    assert TrialOutcome.from_dict(data).status is status


@pytest.mark.parametrize(
    "change",
    [
        {"status": "splendid"},
        {"status": "pending"},
        {"started_at": "yesterday"},
        {"measurements": [{"gas": 2}]},
        {"colour": "blue"},
    ],
)
def test_anything_else_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"Trial|pending"):
        TrialOutcome.from_dict(FULL.as_dict() | change)
