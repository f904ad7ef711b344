"""Sweeps: the strategies of a space, ranked by predicted rate."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from autotune.calibration import Calibration, Forecast, general_knowledge
from autotune.cost_model.estimate import Estimate, estimate
from autotune.prediction.campaign_cost import campaign_cost
from autotune.prediction.candidates import Candidates, probably_fits
from autotune.prediction.space import obstacle_of, queried_space
from autotune.schemas.calibrations import CalibrationSummary
from autotune.schemas.predictions import Sweep, SweepRow
from autotune.schemas.requests import CampaignCreate, SpaceQuery
from autotune.schemas.resolution import machine_shape, model_shape, strategy_shape, subject_of
from autotune.search import few_nodes
from search_spaces.errors import InvalidInputs
from search_spaces.lattice import Lattice
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.transformer import Transformer

FORECAST = 500
"""Number of strategies, best first by the formulas, that are forecast and ranked again. The
residual moves a strategy by a few ranks, not by hundreds."""


def sweep(
    query: SpaceQuery,
    calibration: Calibration | None = None,
    summary: CalibrationSummary | None = None,
    *,
    most: int = 20,
    program: ProgramCapabilities = ANY_PROGRAM,
) -> Sweep:
    """Estimate every legal strategy of a space, and forecast the best `most` that probably fit.

    Args:
        calibration, summary, program: as for `predict`.

    Raises:
        InvalidInputs: fields `model`, `machine`, `nodes`, `space.…`; no strategy is legal, none
            fits, or too many are legal.
    """
    started = perf_counter()
    transformer, machine = subject_of(query.model, query.machine)
    calibration = calibration or general_knowledge(machine, program.tuning, program.states)
    space = queried_space(query, transformer, machine, program=program)
    lattice = space.lattice()
    estimated = estimate(transformer, machine, lattice, parameters=calibration.parameters)
    fits = probably_fits(calibration, transformer, lattice, estimated)
    counted = replace(estimated, fits=fits)
    obstacle = obstacle_of(space, counted, spec=query.space, parameters=calibration.parameters)
    if obstacle:
        raise InvalidInputs([obstacle])
    candidates = Candidates.of(space, calibration, objective="tokens_per_s", headroom_gib=0.0)
    cost = None
    if len(candidates.likely):
        request = CampaignCreate(
            model=query.model,
            machine=query.machine,
            nodes=query.nodes,
            evaluator=query.evaluator,
            slurm=query.slurm,
            ray=query.ray,
            space=query.space,
        )
        cost = campaign_cost(request, space, candidates.promising(), few_nodes(request, space))
    return Sweep(
        model=model_shape(transformer),
        machine=machine_shape(machine),
        legal=len(lattice),
        fitting=int(np.count_nonzero(fits)),
        calibration=summary,
        seconds=perf_counter() - started,
        rows=_ranked(calibration, transformer, lattice, counted, most=most),
        cost=cost,
        gain=candidates.gain(cost, tokens=None) if cost else None,
    )


def _ranked(
    calibration: Calibration,
    transformer: Transformer,
    lattice: Lattice,
    estimated: Estimate,
    *,
    most: int,
) -> list[SweepRow]:
    rates = lattice.global_batch_size / estimated.iteration_time_s
    fitting = np.flatnonzero(estimated.fits)
    by_rate = fitting[np.argsort(-rates[fitting], kind="stable")]
    lattice = lattice.take(by_rate[: max(FORECAST, most)])
    forecast = calibration.forecast(transformer, lattice)
    rates = lattice.global_batch_size / forecast.iteration_time_s
    order = np.argsort(-rates, kind="stable")[:most].tolist()
    return [
        SweepRow(**row_of(forecast, lattice, transformer, row, rank=rank))
        for rank, row in enumerate(order, start=1)
    ]


def row_of(
    forecast: Forecast, lattice: Lattice, transformer: Transformer, row: int, *, rank: int
) -> dict[str, Any]:
    """Return the fields of a SweepRow for one strategy of a lattice."""
    batch = int(lattice.global_batch_size[row])
    tokens = float(batch * transformer.seq_length)
    return {
        "rank": rank,
        "strategy": strategy_shape(lattice.strategy(row)),
        "global_batch_size": batch,
        "tokens_per_s": tokens / float(forecast.iteration_time_s[row]),
        "tokens_per_s_low": tokens / float(forecast.iteration_time_high_s[row]),
        "tokens_per_s_high": tokens / float(forecast.iteration_time_low_s[row]),
        "iteration_time_s": float(forecast.iteration_time_s[row]),
        "memory_gib": float(forecast.memory_gib[row]),
        "fit_probability": float(forecast.fit_probability[row]),
    }
