"""What a space lacks: why nothing in it can run, what its rules remove, and how many nodes a model
needs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autotune.calibration import Calibration
from autotune.calibration.calibration import prior_of
from autotune.cost_model import estimate
from autotune.cost_model.columns import Columns
from autotune.measurement.objectives import headroom_of
from autotune.prediction.candidates import LEAST_CHANCE
from autotune.schemas.predictions import LIKELY_TO_FIT, BrokenRule
from autotune.schemas.requests import CampaignCreate
from autotune.schemas.resolution import space_of
from autotune.words.quantities import nodes_of
from search_spaces.dimensions import setting_text
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.rules import PROGRAM_RULE, RULES
from search_spaces.space import SearchSpace

LEANEST = 50
"""Number of strategies, of the lowest predicted memory, that decide whether anything fits."""


def advice_on(space: SearchSpace) -> list[str]:
    """Return warnings about comparing the strategies of a space."""
    enumeration = space.enumerate()
    batches = np.unique(enumeration.legal.global_batch_size).tolist()
    legal = len(enumeration.legal)
    advice = [
        f"{count} of {legal} legal strategies violate a rule: {RULES[rule].demand}"
        for rule, count in enumeration.warned.items()
    ]
    if len(batches) > 1:
        varying = (
            f"the global batch size varies from {batches[0]} to {batches[-1]} samples, which "
            "affects convergence: fix global_batch_size to compare layouts at the same one"
        )
        advice = [varying, *advice]
    if space.given_up:
        values = "; ".join(
            f"{name} {', '.join(map(setting_text, each))}" for name, each in space.given_up.items()
        )
        advice.append(
            f"left out, because the space would be too large to search: {values}; to search one of "
            "them, name its values, and fewer of another dimension"
        )
    return advice


def removed_of(space: SearchSpace) -> Iterator[BrokenRule]:
    for rule, count in space.enumerate().removed.items():
        if rule != PROGRAM_RULE:
            yield BrokenRule(rule=rule, reason=RULES[rule].demand, count=count)
            continue
        for reason, refused in space.refused_by_program().items():
            yield BrokenRule(rule=rule, reason=reason, count=refused)


def obstacle_of(
    request: CampaignCreate, space: SearchSpace, calibration: Calibration | None = None
) -> InvalidInput | None:
    """Return why no strategy of a campaign's space can be tried: none is legal, or even the leanest
    hardly fits. What may fit is tried, the leanest first.

    Args:
        calibration: the prior of the machine and trainer by default.
    """
    calibration = calibration or prior_of(space)
    enumeration = space.enumerate()
    if len(enumeration.legal) == 0:
        removed = "; ".join(
            f"{broken.rule} removed {broken.count} ({broken.reason})"
            for broken in removed_of(space)
        )
        reason = f"none of the {enumeration.raw} strategies is legal: {removed}"
        return InvalidInput("space", enumeration.raw, reason, valid="a space with a legal strategy")
    needs_gib, columns = _leanest(space, calibration)
    if calibration.fit_probability(columns).max() <= LEAST_CHANCE:
        return _fits_nowhere(request, space, calibration, needs_gib)
    headroom_gib = request.min_headroom_gib or 0.0
    chances = calibration.fit_probability(columns, headroom_gib=headroom_gib)
    if chances.max() <= LEAST_CHANCE:
        left = space.machine.memory_gib - needs_gib
        reason = f"the leanest strategy of the space is predicted to leave {left:.3g} GiB"
        valid = f"0 to {max(left, 0.0):.3g}, or more nodes"
        return InvalidInput("min_headroom_gib", headroom_gib, reason, valid=valid)
    return None


def searched_headroom_gib(
    request: CampaignCreate, space: SearchSpace, calibration: Calibration
) -> float:
    """Return the memory in GiB that a search leaves free: the requested headroom, or the default
    one; 0 if even the leanest strategies are unlikely to leave the default."""
    headroom_gib = headroom_of(request.min_headroom_gib, space.transformer, space.machine)
    if request.min_headroom_gib is not None:
        return headroom_gib
    _, columns = _leanest(space, calibration)
    chance = calibration.fit_probability(columns, headroom_gib=headroom_gib).max()
    return headroom_gib if chance > LIKELY_TO_FIT else 0.0


def _leanest(space: SearchSpace, calibration: Calibration) -> tuple[float, Columns]:
    """Return the least memory in GiB that a legal strategy is predicted to need, and the LEANEST
    strategies."""
    lattice = space.lattice()
    parameters = calibration.parameters
    needed = estimate(space.transformer, space.machine, lattice, parameters=parameters).memory_gib
    rows = np.argsort(needed, kind="stable")[:LEANEST]
    return float(needed[rows[0]]), Columns.of(space.transformer, lattice.take(rows))


STEPS = 8
"""Number of node counts tried between successive powers of two."""

FINEST = 64
"""Node counts tried within a gap; the answer is exact if the gap has no more."""


def _fits_nowhere(
    request: CampaignCreate, space: SearchSpace, calibration: Calibration, needs_gib: float
) -> InvalidInput:
    machine = space.machine
    usable_gib = calibration.parameters.usable_gib(machine)
    needs = (
        f"{space.transformer.name} fits nowhere within {nodes_of(space.nodes)}: the leanest "
        f"strategy needs {needs_gib:.3g} GiB of each GPU's {machine.memory_gib:g} "
        f"({usable_gib:.3g} of them usable)"
    )
    unsharded = (
        f"; {space.program.name} always has ZeRO 0 here, so nothing is sharded: if it uses FSDP or "
        "ZeRO, add zero_stage to [set] or [fixed] of its adapter"
        if dict(space.program.fixed).get("zero_stage") == 0
        else ""
    )
    try:
        enough = least_nodes(request, space, calibration)
    except InvalidInputs:  # a space on more nodes is too large to estimate
        valid = "more nodes, or fewer values of some dimensions"
        return InvalidInput("nodes", space.nodes, f"{needs}{unsharded}", valid=valid)
    if enough is None:
        whole = f"the whole of {machine.name}, {nodes_of(machine.max_nodes)},"
        reason = f"{needs}; not even {whole} would do{unsharded}"
        return InvalidInput("nodes", space.nodes, reason, valid="a smaller model or a wider space")
    reason = f"{needs}; the smallest sufficient number of nodes is {enough}{unsharded}"
    return InvalidInput("nodes", space.nodes, reason, valid=f"{enough} or more")


def least_nodes(
    request: CampaignCreate, space: SearchSpace, calibration: Calibration | None = None
) -> int | None:
    """Return the minimum number of nodes, above the space's own, on which a strategy probably fits.

    Exact to one part in FINEST between two powers of two; None if not even the whole machine is
    enough.

    Raises:
        InvalidInputs: a space on more nodes is too large to estimate.
    """
    calibration = calibration or prior_of(space)

    def fits(nodes: int) -> bool:
        spec = request.space.model_copy(update={"num_nodes": nodes})
        there = space_of(spec, space.transformer, space.machine, nodes=nodes, program=space.program)
        if not len(there.lattice()):
            return False
        _, columns = _leanest(there, calibration)
        return bool(calibration.fit_probability(columns).max() > LIKELY_TO_FIT)

    below = space.nodes
    for nodes in _node_counts(space.nodes, space.machine.max_nodes):
        if fits(nodes):
            between = range(below + 1, nodes, -(-(nodes - below) // FINEST))
            return next((n for n in between if fits(n)), nodes)
        below = nodes
    return None


def _node_counts(above: int, most: int) -> Iterator[int]:
    low = 1 << (above.bit_length() - 1)
    while low < most:
        step = max(low // STEPS, 1)
        yield from (n for n in range(low + step, 2 * low + 1, step) if above < n < most)
        low *= 2
    if above < most:
        yield most
