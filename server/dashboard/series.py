"""What the charts of one layout show, as typed series computed from the wire models alone.

The page, its JSON twin and the tests all read these; scripts only map them to marks. What a whole
campaign shows is in `server.figures`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from autotune.measurement import AccumulationMeasurement, accumulations
from autotune.resolution import machine_of, strategy_of, transformer_of
from autotune.schemas import Accumulation, Campaign, Recommendation, Trial, Wire
from server.wording import strategy_line


class AccumulationSeries(Wire):
    """Throughput of one layout at each GAS: what was measured, and what the law says."""

    strategy: str
    simulated: bool
    points: list[Accumulation]


class RankMemory(Wire):
    rank: int
    peak_memory_gib: float


class MemorySeries(Wire):
    """Peak memory of each rank against one GPU's limit, GiB."""

    limit_gib: Annotated[float, Field(gt=0)]
    simulated: bool
    ranks: list[RankMemory]


def accumulation_series(campaign: Campaign, trial: Trial) -> AccumulationSeries:
    """Return the throughput at each GAS that a trial's measurements tell of, smallest first."""
    measured = [
        AccumulationMeasurement(
            gradient_accumulation_steps=point.gradient_accumulation_steps,
            iteration_times_s=tuple(point.iteration_times_s),
        )
        for point in trial.accumulations
        if point.iteration_times_s
    ]
    points = accumulations(
        transformer_of(campaign.model).with_layers(trial.num_layers),
        machine_of(campaign.machine),
        strategy_of(trial.strategy),
        measured,
    )
    return AccumulationSeries(
        strategy=strategy_line(trial.strategy), simulated=trial.simulated, points=points
    )


def best_accumulation_series(recommendation: Recommendation) -> AccumulationSeries:
    """Return the best layout's throughput at each GAS, from all its trials together."""
    return AccumulationSeries(
        strategy=strategy_line(recommendation.best.strategy),
        simulated=recommendation.simulated,
        points=recommendation.accumulations,
    )


def memory_series(trial: Trial, *, limit_gib: float) -> MemorySeries:
    """Return the peak memory of each rank of one trial."""
    ranks = enumerate(trial.peak_memory_gib_by_rank)
    return MemorySeries(
        limit_gib=limit_gib,
        simulated=trial.simulated,
        ranks=[RankMemory(rank=rank, peak_memory_gib=gib) for rank, gib in ranks],
    )
