"""A campaign over torchtitan itself, on CPUs, through a real Slurm, and its recommendation again.

It takes minutes. It runs where AUTOTUNE_TORCHTITAN names an interpreter that has torchtitan 0.2.2.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from evaluators.adapter.readers import events
from server.settings import Settings
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import slurm
from tests.evaluators.adapter.torchtitan.training import DEBUG_MODEL, write_adapter
from tests.evaluators.artefacts.test_on_slurm import run
from tests.server.runner.test_slurm import VIRTUAL, SlurmService

__all__ = ["slurm"]

PYTHON = os.environ.get("AUTOTUNE_TORCHTITAN", "")
CAMPAIGN: dict[str, Any] = {
    "model": DEBUG_MODEL,
    "adapter": "titan",
    "slurm": {"profile": "virtual"},
    "pool_nodes": 2,
    "space": {
        "tensor_parallel": [1, 2],
        "pipeline_parallel": [1, 2],
        "micro_batch_size": [1, 2],
        "gradient_accumulation_steps": 4,
        "zero_stage": [0, 2, 3],
        "num_nodes": 2,
        "precision": "fp32",
        "sequence_parallel": [False, True],
        "activation_checkpointing": ["none", "full"],
    },
    "budget": {"max_trials": 2},
    "protocol": {
        "confirmations": 1,
        "measured_iterations": 5,
        "most_iterations": 10,
        "time_limit_s": 400.0,
    },
}

OWN = "time_metrics_end_to_end_s"

pytestmark = [
    pytest.mark.xdist_group("slurm-service"),
    pytest.mark.skipif(not PYTHON, reason="AUTOTUNE_TORCHTITAN names no interpreter"),
]


@pytest.fixture
def titan(
    slurm: Cluster,  # noqa: ARG001 (its commands are those of this process now)
    tmp_path: Path,
) -> Iterator[SlurmService]:
    for name in ("adapters", "profiles"):
        (tmp_path / name).mkdir()
    write_adapter(tmp_path / "adapters", python=PYTHON)
    (tmp_path / "profiles" / "virtual.toml").write_text(VIRTUAL)
    settings = Settings(
        data_dir=tmp_path / "data",
        profiles_dir=tmp_path / "profiles",
        adapters_dir=tmp_path / "adapters",
    )
    found = SlurmService(settings)
    yield found
    found.close()


def test_its_times_are_its_own_and_its_recommendation_trains(
    titan: SlurmService, slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.patience.PATIENCE_S", 1800.0)
    campaign = titan.create(**CAMPAIGN)
    titan.until(lambda: titan.campaign(campaign).state in {"done", "paused", "failed"})
    trials = titan.trials(campaign)
    assert {trial.state for trial in trials} == {TrialState.OK}, [t.error for t in trials]
    for trial in trials:
        assert _far_from_own_events(titan, trial) < 0.005
    found = titan.recommendation(campaign)
    script = titan.client.get(f"/api/v1/campaigns/{campaign.id}/artefacts/benchmark.sbatch").text
    again = _seconds_of(slurm, script, tmp_path / "again")
    measured = found.best.metrics.iteration_time_s
    print(f"recommended {measured:.4f} s, run again {again:.4f} s")  # no two runs are equally fast


def _far_from_own_events(titan: SlurmService, trial: Trial) -> float:
    """How far the times of a trial are from those that torchtitan writes, at most."""
    folder = titan.settings.trial_dir(trial.token)
    own = [_own_seconds(path) for path in sorted(folder.rglob("start-*/tb/**/*tfevents*"))]
    assert len(own) == len(trial.accumulations)
    return max(
        abs(took / wrote - 1)
        for point, times in zip(trial.accumulations, own, strict=True)
        for took, wrote in zip(point.iteration_times_s, times[3:], strict=False)
    )


def _own_seconds(path: Path) -> list[float]:
    """The seconds of each iteration, as torchtitan's events have them."""
    rows = (row.values for row in events(path))
    return [float(row[OWN] or 0) for row in rows if OWN in row]


def _seconds_of(cluster: Cluster, script: str, folder: Path) -> float:
    """Submit it; return the median iteration by torchtitan's own events."""
    folder.mkdir()
    run(cluster, folder, script, limit_s=1800.0)
    (path,) = folder.rglob("*tfevents*")
    times = _own_seconds(path)
    assert len(times) == 100
    return median(times[3:])
