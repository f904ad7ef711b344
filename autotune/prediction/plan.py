"""Plans: size of a space, its best predictions, and the cost and expected gain of a campaign."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from autotune.baseline import baseline_of, read_arguments, remarks
from autotune.calibration import Calibration
from autotune.cost_model import Estimate, estimate
from autotune.cost_model.columns import Columns
from autotune.explanation.failures import remedies_of
from autotune.explanation.parts import time_by_part
from autotune.measurement.objectives import unknown_objective
from autotune.prediction.campaign_cost import campaign_cost
from autotune.prediction.candidates import Candidates, probably_fits
from autotune.prediction.space import obstacle_of
from autotune.prediction.sweep import row_of
from autotune.schemas.campaigns import StartedFrom
from autotune.schemas.plans import CampaignPlan, PlannedStrategy
from autotune.schemas.requests import CampaignCreate
from autotune.schemas.resolution import machine_shape, model_shape
from autotune.search import few_nodes
from autotune.search.layouts import log_work
from autotune.words.plans import plan_sentence
from search_spaces.errors import InvalidInputs
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy

SHOWN = 10
"""Number of layouts whose best strategy is predicted in full."""


def plan(
    request: CampaignCreate,
    space: SearchSpace,
    calibration: Calibration,
    *,
    started_from: Sequence[StartedFrom] = (),
    simulated: bool = False,
    most: int = SHOWN,
) -> CampaignPlan:
    """Return the plan of a campaign.

    Args:
        space: the campaign's space.
        calibration: the one that the campaign would start with.
        started_from: the earlier trials in the calibration.
        simulated: whether those trials, and the campaign's own, are simulated.
        most: maximum number of strategies in the plan.

    Raises:
        InvalidInputs: too many strategies are legal, or the objective or baseline is not possible.
    """
    started = perf_counter()
    transformer, machine = space.transformer, space.machine
    unknown = unknown_objective(request.objective, machine)
    if unknown is not None:
        raise InvalidInputs([unknown])
    lattice = space.lattice()
    parameters = calibration.parameters
    estimated = estimate(transformer, machine, lattice, parameters=parameters)
    headroom_gib = request.min_headroom_gib
    fits = probably_fits(calibration, transformer, lattice, estimated, headroom_gib=headroom_gib)
    answer = CampaignPlan(
        model=model_shape(transformer),
        machine=machine_shape(machine),
        objective=request.objective,
        nodes=space.nodes,
        legal=len(lattice),
        fitting=int(np.count_nonzero(fits)),
        layouts=0,
        global_batch_sizes=np.unique(lattice.global_batch_size).tolist(),
        memory_limit_gib=estimated.memory_limit_gib,
        best=[],
        started_from=list(started_from),
        simulated=simulated,
        seconds=0.0,
        sentence="",
    )
    if not fits.any():
        counted = replace(estimated, fits=fits)
        answer = answer.model_copy(
            update=_nothing_to_try(request, space, calibration, counted, legal=len(lattice))
        )
    else:
        answer = answer.model_copy(update=_what_to_try(request, space, calibration, most=most))
    own = remarks(read_arguments(request, transformer))
    sentence = plan_sentence(answer) + (f" Your own layout: {'; '.join(own)}." if own else "")
    return answer.model_copy(update={"sentence": sentence, "seconds": perf_counter() - started})


def _what_to_try(
    request: CampaignCreate, space: SearchSpace, calibration: Calibration, *, most: int
) -> dict[str, object]:
    candidates = Candidates.of(
        space,
        calibration,
        objective=request.objective,
        headroom_gib=request.min_headroom_gib,
    )
    strategies = candidates.promising(most)
    baseline = baseline_of(request, space)
    every = [*strategies, *([baseline] if baseline else [])]
    planned = _planned(request, space, calibration, every)
    best = planned[: len(strategies)]
    customary = planned[-1] if baseline else None
    cost = campaign_cost(request, space, candidates.promising(), few_nodes(request, space))
    return {
        "layouts": len(candidates.likely),
        "best": best,
        "baseline": customary,
        "over_baseline": best[0].objective / customary.objective if customary else None,
        "cost": cost,
        "gain": candidates.gain(cost, tokens=request.budget.train_tokens),
    }


def _planned(
    request: CampaignCreate,
    space: SearchSpace,
    calibration: Calibration,
    strategies: Sequence[Strategy],
) -> list[PlannedStrategy]:
    transformer, machine = space.transformer, space.machine
    lattice = Lattice.of(strategies, gpus_per_node=machine.gpus_per_node)
    forecast = calibration.forecast(transformer, lattice)
    fits = calibration.fit_probability(
        Columns.of(transformer, lattice), headroom_gib=request.min_headroom_gib
    )
    work = np.exp(log_work(lattice, transformer, machine, objective=request.objective))
    planned = []
    for row in range(len(strategies)):
        figures = forecast.of_one(row)
        told = row_of(forecast, lattice, transformer, row, rank=row + 1) | figures
        told["time_parts_s"] = time_by_part(figures["time_parts_s"])
        told["objective"] = float(work[row] / forecast.iteration_time_s[row])
        planned.append(PlannedStrategy(**told | {"fit_probability": float(fits[row])}))
    return planned


def _nothing_to_try(
    request: CampaignCreate,
    space: SearchSpace,
    calibration: Calibration,
    estimated: Estimate,
    *,
    legal: int,
) -> dict[str, object]:
    obstacle = obstacle_of(space, estimated, spec=request.space, parameters=calibration.parameters)
    remedies = (
        remedies_of(
            space,
            calibration,
            objective=request.objective,
            headroom_gib=request.min_headroom_gib,
        )
        if legal
        else []
    )
    return {
        "obstacle": obstacle.reason if obstacle else "",
        "remedies": remedies,
    }
