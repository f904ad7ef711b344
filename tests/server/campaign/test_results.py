from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from autotune.measurement.metrics import AccumulationMeasurement
from autotune.schemas.choices import TrialState
from evaluators.trial import TrialOutcome
from search_spaces.catalog import load_machine, load_model
from server.campaign.results import Workload, finished_trial
from tests.server.asking import STRATEGY

WORKLOAD = Workload(
    transformer=load_model("gpt-22b"), machine=load_machine("frontier"), objective="tokens_per_s"
)
NOW = datetime(2030, 1, 1, tzinfo=UTC)
MEASURED = tuple(
    AccumulationMeasurement(gradient_accumulation_steps=gas, iteration_times_s=(seconds,) * 3)
    for gas, seconds in ((8, 4.0), (16, 7.0))
)


def outcome(**changes: object) -> TrialOutcome:
    plain: dict[str, object] = {
        "status": TrialState.OK,
        "started_at": NOW - timedelta(seconds=100),
        "duration_s": 90.0,
        "simulated": True,
        "measurements": MEASURED,
        "peak_memory_gib": (10.0, 12.0),
    }
    return TrialOutcome(**plain | changes)  # type: ignore[arg-type]


def test_the_figures_of_a_trial_that_went_well() -> None:
    result = finished_trial(WORKLOAD, STRATEGY, outcome(), now=NOW)
    assert result.state is TrialState.OK
    assert result.metrics is not None
    assert result.metrics.iteration_time_s == 4.0
    assert result.metrics.peak_memory_gib == 12.0
    batch = 1 * 8 * 2  # MBS x GAS x DP
    assert result.metrics.tokens_per_s == pytest.approx(batch * 2048 / 4.0)
    assert result.node_hours == pytest.approx(2 * 90.0 / 3600)
    assert result.finished_at == NOW - timedelta(seconds=10)
    assert [point.gradient_accumulation_steps for point in result.accumulations] == [8, 16]


def test_a_simulated_trial_does_not_end_in_the_future() -> None:
    result = finished_trial(WORKLOAD, STRATEGY, outcome(duration_s=500.0), now=NOW)
    assert result.finished_at == NOW
    assert result.duration_s == 500.0


def test_a_failed_trial_has_no_figures_but_costs_its_time() -> None:
    failed = outcome(status=TrialState.OOM, error="no memory")
    result = finished_trial(WORKLOAD, STRATEGY, failed, now=NOW)
    assert result.metrics is None
    assert list(result.accumulations) == []
    assert result.error == "no memory"
    assert result.node_hours > 0


@pytest.mark.parametrize(
    "measurements",
    [
        (),
        (AccumulationMeasurement(gradient_accumulation_steps=8, iteration_times_s=()),),
        (AccumulationMeasurement(gradient_accumulation_steps=8, iteration_times_s=(math.nan,)),),
    ],
)
def test_a_trial_that_measured_too_little_has_crashed(
    measurements: tuple[AccumulationMeasurement, ...],
) -> None:
    found = outcome(measurements=measurements)
    result = finished_trial(WORKLOAD, STRATEGY, found, now=NOW)
    assert (result.state, result.metrics) == (TrialState.CRASHED, None)
    assert "no iteration time" in (result.error or "")


@pytest.mark.parametrize("times_s", [(0.0, 0.0, 0.0), (1e-6, 1e-6), (8.0, 1.4, 8.0)])
def test_a_trial_with_times_that_no_machine_reaches_has_crashed(times_s: tuple[float, ...]) -> None:
    """On 16 GCDs an iteration takes at least 1.4 s; one time that is shorter makes all doubtful."""
    together = AccumulationMeasurement(gradient_accumulation_steps=16, iteration_times_s=times_s)
    found = outcome(measurements=(MEASURED[0], together))
    result = finished_trial(WORKLOAD, STRATEGY, found, now=NOW)
    assert (result.state, result.metrics) == (TrialState.CRASHED, None)
    assert list(result.accumulations) == []
    assert "GAS 16" in (result.error or "")
    assert "is impossible" in (result.error or "")


def test_a_trial_given_up_has_the_least_rate_its_value_allows() -> None:
    pipeline = STRATEGY.with_accumulation(32)
    found = outcome(measurements=MEASURED[:1])
    result = finished_trial(WORKLOAD, pipeline, found, now=NOW)
    assert result.state is TrialState.OK
    assert result.metrics is not None
    bubble = pipeline.pipeline_parallel - 1
    assert result.metrics.iteration_time_s == pytest.approx(4.0 * (32 + bubble) / (8 + bubble))
    assert not result.metrics.measured
    assert [point.gradient_accumulation_steps for point in result.accumulations] == [8]


def test_a_loss_that_is_no_number_is_not_stored() -> None:
    result = finished_trial(WORKLOAD, STRATEGY, outcome(loss=math.nan), now=NOW)
    assert result.metrics is not None
    assert result.metrics.loss is None


def test_the_trainers_parameters_stand_next_to_the_requested() -> None:
    def counted(count: float | None) -> tuple[int | None, int | None]:
        found = outcome(trainer_parameters=count)
        figures = finished_trial(WORKLOAD, STRATEGY, found, now=NOW).metrics
        assert figures is not None
        return figures.trainer_parameters, figures.model_parameters

    assert counted(2e9) == (2_000_000_000, WORKLOAD.transformer.parameters)
    assert counted(None) == counted(math.inf) == (None, None)


def test_what_a_scheduler_and_the_gpus_reported_is_stored() -> None:
    reported = outcome(
        job_id="4711", gpu_joules_per_token=0.25, energy_note="nvidia-smi on 2 nodes"
    )
    result = finished_trial(WORKLOAD, STRATEGY, reported, now=NOW)
    assert (result.job_id, result.gpu_joules_per_token) == ("4711", 0.25)
    assert result.energy_note == "nvidia-smi on 2 nodes"
    for none in (math.nan, 0.0, None):
        reported = outcome(gpu_joules_per_token=none)
        result = finished_trial(WORKLOAD, STRATEGY, reported, now=NOW)
        assert result.gpu_joules_per_token is None
