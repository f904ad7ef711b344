"""The plan of a campaign: what its space has, what probably fits, the best predictions, and the
cost and expected gain of searching it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from autotune.baseline import baseline_name, baseline_of, read_arguments, remarks
from autotune.calibration import Calibration
from autotune.calibration.calibration import prior_of
from autotune.cost_model import estimate
from autotune.cost_model.columns import Columns
from autotune.explanation.failures import remedies_of
from autotune.explanation.parts import time_by_part
from autotune.explanation.what_if import left_out
from autotune.measurement.objectives import unknown_objective
from autotune.prediction.campaign_cost import campaign_cost
from autotune.prediction.candidates import Candidates, probably_fits
from autotune.prediction.space import advice_on, obstacle_of, removed_of, searched_headroom_gib
from autotune.schemas.campaigns import StartedFrom
from autotune.schemas.plans import CampaignPlan, PlannedStrategy
from autotune.schemas.predictions import LIKELY_TO_FIT
from autotune.schemas.requests import CampaignCreate
from autotune.search import few_nodes
from autotune.search.layouts import Layouts, log_work
from autotune.words.plans import plan_sentence
from search_spaces.dimensions import OF_EXPERTS
from search_spaces.errors import InvalidInputs
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy

SHOWN = 10
"""Number of layouts whose best strategy is predicted in full."""


def plan(
    request: CampaignCreate,
    space: SearchSpace,
    calibration: Calibration | None = None,
    *,
    started_from: Sequence[StartedFrom] = (),
    simulated: bool = False,
    most: int = SHOWN,
) -> CampaignPlan:
    """Return the plan of a campaign, which says so if nothing can be tried.

    Args:
        space: the campaign's space.
        calibration: the one that the campaign would start with; the prior of its machine and
            trainer by default.
        started_from: the earlier trials in the calibration.
        simulated: whether those trials, and the campaign's own, are simulated.
        most: maximum number of strategies in the plan.

    Raises:
        InvalidInputs: the objective, the baseline or the screening is not possible.
    """
    started = perf_counter()
    transformer, machine = space.transformer, space.machine
    unknown = unknown_objective(request.objective, machine)
    if unknown is not None:
        raise InvalidInputs([unknown])
    calibration = calibration or prior_of(space)
    lattice, enumeration = space.lattice(), space.enumerate()
    layouts = Layouts.of(space, objective=request.objective)
    estimated = estimate(transformer, machine, lattice, parameters=calibration.parameters)
    fits = probably_fits(
        calibration, transformer, lattice, estimated, headroom_gib=request.min_headroom_gib or 0.0
    )
    obstacle = obstacle_of(request, space, calibration)
    answer = CampaignPlan(
        model=transformer,
        machine=machine,
        objective=request.objective,
        nodes=space.nodes,
        dimensions={
            name: list(values)
            for name, values in space.dimensions.items()
            if name not in OF_EXPERTS or name in space.beyond_all
        },
        raw=enumeration.raw,
        legal=len(lattice),
        fitting=int(np.count_nonzero(fits)),
        legal_layouts=layouts.count,
        global_batch_sizes=np.unique(lattice.global_batch_size).tolist(),
        refusals=list(removed_of(space)),
        warnings=advice_on(space),
        memory_limit_gib=estimated.memory_limit_gib,
        obstacle=obstacle.reason if obstacle else "",
        started_from=list(started_from),
        simulated=simulated,
    )
    tried = (
        _what_to_try(request, space, calibration, layouts, most=most)
        if obstacle is None
        else {"remedies": _remedies(request, space, calibration)}
    )
    answer = answer.model_copy(update=tried)
    own = remarks(read_arguments(request, transformer))
    sentence = plan_sentence(answer) + (f" Your own layout: {'; '.join(own)}." if own else "")
    return answer.model_copy(update={"sentence": sentence, "seconds": perf_counter() - started})


def _what_to_try(
    request: CampaignCreate,
    space: SearchSpace,
    calibration: Calibration,
    layouts: Layouts,
    *,
    most: int,
) -> dict[str, Any]:
    headroom_gib = searched_headroom_gib(request, space, calibration)
    candidates = Candidates.of(space, calibration, layouts=layouts, headroom_gib=headroom_gib)
    strategies = candidates.promising(most)
    baseline = baseline_of(request, space)
    every = [*strategies, *([baseline] if baseline else [])]
    planned = list(_planned(request, space, calibration, every))
    best = planned[: len(strategies)]
    screening = few_nodes(request, space, layouts)
    cost = campaign_cost(
        request,
        space,
        candidates.promising(),
        screening,
        parameters=calibration.parameters,
    )
    return {
        "layouts": len(candidates.likely),
        "best": best,
        "baseline": planned[-1] if baseline else None,
        "baseline_name": baseline_name(request, space.transformer, space.machine, baseline)
        if baseline
        else "",
        "baseline_sentence": _baseline_sentence(request, space, baseline, planned[-1])
        if baseline
        else "",
        "over_baseline": best[0].objective / planned[-1].objective if baseline else None,
        "cost": cost,
        "screening": screening,
        "gain": candidates.gain(cost, tokens=request.budget.train_tokens),
        "left_out": left_out(
            space,
            calibration,
            strategies[0],
            objective=request.objective,
            headroom_gib=headroom_gib,
        ),
    }


def _planned(
    request: CampaignCreate,
    space: SearchSpace,
    calibration: Calibration,
    strategies: Sequence[Strategy],
) -> Iterator[PlannedStrategy]:
    transformer, machine = space.transformer, space.machine
    lattice = Lattice.of(strategies, gpus_per_node=machine.gpus_per_node)
    forecast = calibration.forecast(transformer, lattice)
    fits = calibration.fit_probability(
        Columns.of(transformer, lattice), headroom_gib=request.min_headroom_gib or 0.0
    )
    work = np.exp(log_work(lattice, transformer, machine, objective=request.objective))
    for row, strategy in enumerate(strategies):
        figures = forecast.of_one(row)
        batch = int(lattice.global_batch_size[row])
        tokens = float(batch * transformer.seq_length)
        yield PlannedStrategy(
            **figures
            | {
                "rank": row + 1,
                "strategy": strategy,
                "global_batch_size": batch,
                "tokens_per_s": tokens / figures["iteration_time_s"],
                "tokens_per_s_low": tokens / figures["iteration_time_high_s"],
                "tokens_per_s_high": tokens / figures["iteration_time_low_s"],
                "fit_probability": float(fits[row]),
                "time_parts_s": time_by_part(figures["time_parts_s"]),
                "objective": float(work[row] / forecast.iteration_time_s[row]),
            }
        )


def _baseline_sentence(
    request: CampaignCreate, space: SearchSpace, strategy: Strategy, planned: PlannedStrategy
) -> str:
    origin = baseline_name(request, space.transformer, space.machine, strategy)
    line = f"{strategy.short()}: {origin}, batch {planned.global_batch_size}"
    if planned.fit_probability < LIKELY_TO_FIT:
        free = request.min_headroom_gib
        headroom = f" and leaves {free:g} GiB free" if free else ""
        line += f"; fits{headroom} with a probability of {planned.fit_probability:.0%} only"
    return "; ".join([line, *remarks(read_arguments(request, space.transformer))])


def _remedies(request: CampaignCreate, space: SearchSpace, calibration: Calibration) -> list[Any]:
    if not len(space.lattice()):
        return []
    free = request.min_headroom_gib or 0.0
    return remedies_of(space, calibration, objective=request.objective, headroom_gib=free)
