"""The knobs of a campaign, and their next start after its layouts are confirmed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any

from autotune.cost_model import Parameters
from autotune.knobs.decision import next_starts
from autotune.knobs.phase import (
    at_size,
    knob_trials,
    next_start,
    start_node_hours,
    starts_of,
    with_settings,
)
from autotune.knobs.question import KnobQuestion, Settings
from autotune.prediction.campaign_cost import trial_node_hours
from autotune.recommendation.projected import all_contenders, nodes_at_hand
from autotune.recommendation.ranking import level_runner_up
from autotune.recommendation.recommendation import planned_node_hours, training_cost
from autotune.schemas.campaigns import Campaign
from autotune.schemas.plans import CampaignPlan
from autotune.schemas.predictions import LIKELY_TO_FIT
from autotune.schemas.requests import CampaignCreate, Knobs
from autotune.schemas.trials import CONCLUSIVE, Trial
from autotune.search import Proposer, search_trials
from autotune.search.trial import ATTEMPTS
from evaluators.cluster import ClusterProfile, profile_from_dict
from evaluators.cluster.knobs import read_knob_file
from evaluators.program.support import (
    knob_options,
    knobs_of_program,
    names_of_trainer,
    unknown_names,
)
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.knob import Knob
from search_spaces.program import ProgramCapabilities
from search_spaces.rules import is_refused
from search_spaces.strategy import Strategy
from server.campaign.protocol import knob_iterations
from server.campaign.scheduling import NextTrials, reason_to_end_confirmations

STARTS_OF_FIRST_ROUND = 1.15
"""Starts of all rounds over the 23 of the first, for 20 values: 24 to 28 in replays
(`tests/benchmarks/knob_replay.py`)."""


def knobs_of_campaign(
    request: CampaignCreate, profile: Mapping[str, Any] | None
) -> dict[str, Knob]:
    """Return all knobs of a campaign that tries some, by name; empty if it tries none.

    Args:
        profile: of its cluster or trainer, as stored with the campaign.
    """
    if not request.knobs:
        return {}
    return knobs_of_program(profile_from_dict(profile, source="campaign") if profile else None)


def check_knobs(knobs: Knobs, request: CampaignCreate, profile: ClusterProfile | None) -> None:
    """Raise InvalidInput for knobs that the trainer and the cluster do not have and for own ones
    that the trainer has, too, and InvalidInputs for settings with unknown names."""
    if knobs and request.evaluator == "simulated":
        valid = "the local, slurm or ray evaluator"
        raise InvalidInput("knobs", knobs, "the simulator has no knobs", valid=valid)
    known = knobs_of_program(profile)
    if knobs and not known:
        reason = "neither the trainer nor the cluster has knobs"
        raise InvalidInput(
            "knobs", knobs, reason, valid="none, or a file with your own (knob_file)"
        )
    for name in () if knobs == "all" else knobs:
        if name not in known:
            reason = "neither the trainer nor the cluster has this knob"
            raise InvalidInput("knobs", name, reason, valid=", ".join(["all", *known]))
    own = read_knob_file(request.knob_file) if request.knob_file else {}
    for name in sorted(own.keys() & names_of_trainer(profile)):
        reason = "the trainer has a knob or a dimension of this name"
        raise InvalidInput(f"knob.{name}", name, reason, valid="another name")
    if knobs and profile and (faults := list(unknown_names(profile))):
        raise InvalidInputs(faults)


def next_knob_start(
    campaign: Campaign,
    trials: Sequence[Trial],
    proposer: Proposer,
    knobs: Mapping[str, Knob],
    program: ProgramCapabilities,
    *,
    now: datetime,
    ended: NextTrials,
) -> NextTrials:
    """Return the next start of the best layout, then of a runner-up level with it, with or without
    a knob; `ended` if all is decided.

    One at a time, so that all have the same nodes if they can.

    Args:
        knobs: all of the campaign's trainer and cluster; empty if none are to be tried.
    """
    if not knobs:
        return ended
    layouts = _layouts(campaign, trials, proposer)
    for layout in layouts:
        own = knob_trials(trials, layout, knobs)
        question = _question(campaign, trials, proposer, knobs, program, layout=layout)
        planned = next_start(
            starts_of(own, timed_steps=knob_iterations(campaign.request.protocol)), question
        )
        if planned is None:
            continue
        if (end := _reason_to_end(campaign, trials, own, now=now)) is not None:
            return _ended_with(ended, f"not decided: {end}")
        strategy = with_settings(at_size(layout, planned.micro_batch_size), planned.settings)
        return NextTrials(strategies=(strategy,), purpose="knob")
    names = list(knobs) if campaign.request.knobs == "all" else campaign.request.knobs
    tried = {
        name
        for layout in layouts
        for _, settings in knob_trials(trials, layout, knobs)
        for name, _ in settings
    }
    idle = [name for name in names if name not in tried]
    if not idle or (tried and campaign.request.knobs == "all"):
        return ended
    why = (
        "no effect on the best layout, or a conflict with it"
        if layouts
        else "no layout is confirmed"
    )
    what = f"{', '.join(idle)} not tried" if tried else "not tried"
    return _ended_with(ended, f"{what}: {why}")


def _ended_with(ended: NextTrials, what: str) -> NextTrials:
    before = (ended.phase_ends or "").partition("; knobs ")[0].rstrip(".")
    return NextTrials(phase_ends=f"{before}; knobs {what}" if before else f"knobs {what}")


def _reason_to_end(
    campaign: Campaign,
    trials: Sequence[Trial],
    own: Sequence[tuple[Trial, Settings]],
    *,
    now: datetime,
) -> str | None:
    end = reason_to_end_confirmations(campaign, trials, now=now)
    lost = sum(1 for _ in takewhile(lambda t: t[0].state not in CONCLUSIVE, reversed(own)))
    if end is None and lost >= ATTEMPTS:
        return f"{lost} starts in a row did not run to their end"
    return end


def _question(
    campaign: Campaign,
    trials: Sequence[Trial],
    proposer: Proposer,
    knobs: Mapping[str, Knob],
    program: ProgramCapabilities,
    *,
    layout: Strategy,
) -> KnobQuestion:
    chosen = campaign.request.knobs
    options = tuple(knob_options(layout, knobs, campaign.model, campaign.machine, program, chosen))
    sizes = [layout.micro_batch_size]
    if any(option.reopens for option in options):
        sizes += _other_size(campaign, layout, trials, proposer, program)
    training = training_cost(campaign, trials, belief=proposer.belief)
    return KnobQuestion(
        options=options,
        micro_batch_sizes=tuple(sizes),
        start_node_hours=start_node_hours(layout, trials),
        training_node_hours=planned_node_hours(campaign, training),
        seed=campaign.request.seed,
    )


def with_knob_starts(
    plan: CampaignPlan,
    request: CampaignCreate,
    profile: ClusterProfile | None,
    program: ProgramCapabilities,
    *,
    parameters: Parameters,
) -> CampaignPlan:
    """Return a plan whose cost includes the starts of knobs on the best predicted layout."""
    if not (request.knobs and plan.cost and plan.best):
        return plan
    layout, subject = plan.best[0].strategy, (plan.model, plan.machine)
    knobs = knobs_of_program(profile)
    options = tuple(knob_options(layout, knobs, *subject, program, request.knobs))
    size = layout.micro_batch_size
    sizes = (size, 2 * size) if any(option.reopens for option in options) else (size,)
    question = KnobQuestion(options=options, micro_batch_sizes=sizes, start_node_hours=0.0)
    starts = round(STARTS_OF_FIRST_ROUND * len(next_starts((), question)))
    timed = request.protocol.model_copy(
        update={"measured_iterations": knob_iterations(request.protocol)}
    )
    [each] = trial_node_hours(
        *subject,
        [layout],
        [(layout.gradient_accumulation_steps,)],
        protocol=timed,
        evaluator=request.evaluator,
        parameters=parameters,
    )
    node_hours = plan.cost.node_hours + starts * float(each)
    cost = plan.cost.model_copy(update={"knob_starts": starts, "node_hours": node_hours})
    return plan.model_copy(update={"cost": cost})


def _layouts(campaign: Campaign, trials: Sequence[Trial], proposer: Proposer) -> list[Strategy]:
    ranked = all_contenders(campaign, trials, belief=proposer.belief)
    if not ranked or ranked[0].projection or ranked[0].failed_confirmation:
        return []
    level = (ranked[0], level_runner_up(ranked))
    strategies = [each.strategy for each in level if each is not None]
    return [each for each in strategies if each.num_nodes <= nodes_at_hand(campaign)]


def _other_size(
    campaign: Campaign,
    layout: Strategy,
    trials: Sequence[Trial],
    proposer: Proposer,
    program: ProgramCapabilities,
) -> list[int]:
    """Return another micro-batch size that runs and probably fits, at the same global batch; empty
    if there is none."""
    own = layout.micro_batch_size
    for size in (2 * own, own // 2):
        if not size or own * layout.gradient_accumulation_steps % size:
            continue
        other = at_size(layout, size)
        if is_refused(other, campaign.model, campaign.machine, program=program):
            continue
        [expected] = proposer.expect([other], search_trials(trials))
        if expected.expected.fit_probability >= LIKELY_TO_FIT:
            return [size]
    return []
