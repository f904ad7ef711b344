"""Which layouts can be measured on fewer nodes: with fewer replicas, or with fewer layers."""

from __future__ import annotations

import numpy as np

from autotune.calibration.projection import REPEATS, SPREAD_OF_A_DOUBLING
from autotune.cost_model import estimate_in
from autotune.schemas.campaigns import FewNodes
from autotune.schemas.requests import CampaignCreate
from autotune.search.layouts import Integers, Layouts, Mask
from autotune.search.stand_ins import (
    LEAST_REPLICAS,
    SHORTEST_PIPELINE,
    FewerLayers,
    FewerReplicas,
)
from autotune.words.quantities import nodes_of
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace

PROMISING = 100
"""Layouts, those with the best predicted rate that are predicted to fit, for which a width is
chosen."""

COVERED = 0.5
"""Share of them that an automatic width can stand for, or more."""

LARGEST_SHARE = 0.5
"""Of a campaign's nodes that an automatic width takes at most: it is to save half of a trial."""

FEWEST_TO_SAVE = 16
"""Nodes of a campaign below which trials run in full unless requested otherwise: baseline and
confirmations do in any case, and the rest is a few node-hours."""

UNKNOWN = 0.08
"""Standard deviation of the logarithm of a layout's time before it is measured, as is usual of the
calibrated formulas (`mixture.USUAL`)."""


def few_nodes(
    request: CampaignCreate, space: SearchSpace, layouts: Layouts | None = None
) -> FewNodes:
    """Return the number of nodes, and of layers, with which a search measures: as requested, or
    those that teach most per node-hour.

    Args:
        layouts: of the space, for the request's objective.

    Raises:
        InvalidInputs: field `screen_nodes`: no layout can be measured on so few nodes; field
            `screen_layers`: none can be measured with so few layers, or not on the available nodes.
    """
    if request.search != "calibrated":
        _refuse_stand_ins(request)
        reason = f"All trials run in full, as the search {request.search} has them."
        return FewNodes(nodes=None, reason=reason)
    if isinstance(request.screen_layers, int):
        return _few_layers(request, space, layers=request.screen_layers)
    if request.screen_nodes == "off":
        return FewNodes(nodes=None, reason="All trials run in full, as requested.")
    layouts = layouts or Layouts.of(space, objective=request.objective)
    full = int(layouts.lattice["num_nodes"].max())
    if isinstance(request.screen_nodes, int):
        _refuse_useless(request, space, layouts, full=full)
        reason = (
            f"Trials run on {nodes_of(request.screen_nodes)} and stand for {full}, as requested."
        )
        return FewNodes(nodes=request.screen_nodes, reason=reason)
    if not request.protocol.confirmations or full < FEWEST_TO_SAVE:
        why = f"fewer than {FEWEST_TO_SAVE} nodes have little to save"
        if not request.protocol.confirmations:
            why = "no confirmation would measure the best there"
        return FewNodes(nodes=None, reason=f"All trials run in full: {why}.")
    promising, most = _promising(layouts), int(full * LARGEST_SHARE)
    covered = {
        nodes: float(np.mean(_fits_on(space, promising, nodes)))
        for nodes in _widths(promising, most)
    }
    worth = {
        nodes: share * information_share(nodes, full) / nodes
        for nodes, share in covered.items()
        if share >= COVERED
    }
    if not worth:
        return FewNodes(
            nodes=None,
            reason=(
                f"All trials run in full: on {nodes_of(most)} or fewer, {LEAST_REPLICAS} replicas "
                "fit of too few of the promising layouts."
            ),
        )
    nodes = max(worth, key=lambda nodes: (worth[nodes], -nodes))
    return FewNodes(
        nodes=nodes,
        reason=(
            f"Trials run on {nodes_of(nodes)} and stand for {full}: {LEAST_REPLICAS} replicas or "
            f"more of {covered[nodes]:.0%} of the promising layouts fit there, and a trial tells "
            f"{information_share(nodes, full):.0%} of what one on {nodes_of(full)} does."
        ),
    )


def _refuse_stand_ins(request: CampaignCreate) -> None:
    for field, value in (
        ("screen_nodes", request.screen_nodes),
        ("screen_layers", request.screen_layers),
    ):
        if isinstance(value, int):
            reason = "only the calibrated search projects from smaller trials"
            raise InvalidInput(field, value, reason, valid="off, or search calibrated")


def _few_layers(request: CampaignCreate, space: SearchSpace, *, layers: int) -> FewNodes:
    full, pool = space.transformer.num_layers, request.pool_nodes or request.nodes
    if isinstance(request.screen_nodes, int):
        reason = "a trial stands in on fewer nodes or with fewer layers, not both"
        raise _unusable_layers(layers, reason, valid="off, or screen_nodes off")
    if layers >= full:
        reason = f"{space.transformer.name} has {full} layers"
        raise _unusable_layers(layers, reason, valid=_valid_layers(space, pool))
    lattice = space.lattice()
    nodes = _nodes_of_stand_ins(space, lattice, layers)
    if not len(nodes):
        reason = (
            f"no layout of the space keeps a pipeline of {SHORTEST_PIPELINE} stages or more, even "
            f"ones and on whole nodes, when {full} layers become {layers}"
        )
        if lattice["pipeline_parallel"].max() == 1:
            reason = "no layout of the space has a pipeline that could be shorter"
        raise _unusable_layers(layers, reason, valid=_valid_layers(space, pool))
    if nodes.min() > pool:
        reason = f"they need {nodes_of(int(nodes.min()))} or more, and all trials share {pool}"
        raise _unusable_layers(layers, reason, valid=_valid_layers(space, pool))
    layouts = Layouts.of(space, objective=request.objective).lattice
    possible = FewerLayers(num_layers=layers, full_layers=full).possible(space, layouts)
    reason = (
        f"Trials run with {layers} of {full} layers, in pipelines as much shorter and on as much "
        f"fewer nodes, and stand for all, as requested: {np.count_nonzero(possible)} of "
        f"{len(layouts)} layouts can be measured so."
    )
    too_large = layouts["num_nodes"] > pool
    if too_large[possible].any():
        which = "None of these" if too_large[possible].all() else "Not all of these"
        reason += f" {which} can be measured in full on the {nodes_of(pool)} that trials share."
    return FewNodes(nodes=None, layers=layers, reason=reason)


def _nodes_of_stand_ins(space: SearchSpace, lattice: Lattice, layers: int) -> Integers:
    stand_ins = FewerLayers(num_layers=layers, full_layers=space.transformer.num_layers)
    possible = lattice.take(stand_ins.possible(space, lattice))
    return np.asarray(stand_ins.of_all(possible)["num_nodes"], dtype=np.int64)


def _valid_layers(space: SearchSpace, pool: int) -> str:
    lattice = space.lattice()
    usable = [
        layers
        for layers in range(1, space.transformer.num_layers)
        if np.any(_nodes_of_stand_ins(space, lattice, layers) <= pool)
    ]
    return ", ".join(["off", *map(str, usable)])


def _unusable_layers(layers: int, reason: str, *, valid: str) -> InvalidInputs:
    return InvalidInputs([InvalidInput("screen_layers", layers, reason, valid=valid)])


def information_share(nodes: int, full: int) -> float:
    left_open = REPEATS**2 + (SPREAD_OF_A_DOUBLING * np.log2(full / nodes)) ** 2
    narrow, wide = (np.log1p(UNKNOWN**2 / variance) for variance in (left_open, REPEATS**2))
    return float(narrow / wide)


def _refuse_useless(
    request: CampaignCreate, space: SearchSpace, layouts: Layouts, *, full: int
) -> None:
    nodes = request.screen_nodes
    assert isinstance(nodes, int)
    if not request.protocol.confirmations:
        reason = "what was measured on few nodes has to be confirmed on all of them"
        valid = "protocol.confirmations of 1 or more, or screen_nodes off"
        raise InvalidInputs([InvalidInput("screen_nodes", nodes, reason, valid=valid)])
    if not FewerReplicas(nodes).possible(space, layouts.lattice).any():
        reason = f"no layout of the space has {LEAST_REPLICAS} replicas on so few nodes"
        if nodes >= full:
            reason = f"strategies have {nodes_of(full)} at most"
        valid = _valid_widths(space, layouts, full)
        raise InvalidInputs([InvalidInput("screen_nodes", nodes, reason, valid=valid)])


def _valid_widths(space: SearchSpace, layouts: Layouts, full: int) -> str:
    possible = [
        nodes
        for nodes in _widths(layouts.lattice, full - 1)
        if FewerReplicas(nodes).possible(space, layouts.lattice).any()
    ]
    return f"auto, off, {', '.join(map(str, possible))}" if possible else "auto, off"


def _promising(layouts: Layouts) -> Lattice:
    fits = np.flatnonzero(layouts.memory_gib <= layouts.memory_limit_gib)
    chosen: Integers = fits if len(fits) else np.arange(len(layouts))
    return layouts.lattice.take(chosen[:PROMISING])


def _widths(lattice: Lattice, most: int) -> list[int]:
    gpus = lattice.gpus_per_node
    needed = {
        replicas * int(each)
        for each in np.unique(lattice.model_parallel)
        for replicas in (LEAST_REPLICAS << doubling for doubling in range(most.bit_length() + 3))
    }
    return sorted({n // gpus for n in needed if n % gpus == 0 and n <= most * gpus})


def _fits_on(space: SearchSpace, lattice: Lattice, nodes: int) -> Mask:
    stand_ins = FewerReplicas(nodes)
    possible = stand_ins.possible(space, lattice)
    if possible.any():
        rows = np.flatnonzero(possible)
        narrow = stand_ins.of_all(lattice.take(rows))
        predicted = estimate_in(space, narrow)
        possible[rows] = predicted.fits
    return possible
