"""Few replicas for many: which layouts may be measured on fewer nodes than they are to train on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autotune.calibration.projection import REPEATS, SPREAD_OF_A_DOUBLING
from autotune.cost_model import estimate
from autotune.schemas import CampaignCreate, FewNodes
from autotune.search.layouts import Floats, Integers, Layouts, Mask
from search_spaces.batch import GlobalBatch
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.lattice import Lattice
from search_spaces.rules import rule_masks
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy

LEAST_REPLICAS = 2
"""Of a stand-in: with one replica nothing is reduced over replicas and ZeRO has nothing to cut."""

PROMISING = 100
"""Layouts, those with the best predicted rate that are predicted to fit, for which a width is
chosen."""

COVERED = 0.5
"""Share of them that an automatic width can stand for, or more."""

LARGEST_SHARE = 0.5
"""Of a campaign's nodes that an automatic width takes at most: it is to save half of a trial."""

FEWEST_TO_SAVE = 16
"""Nodes of a campaign below which trials run in full unless asked otherwise: baseline and
confirmations do in any case, and the rest is a few node-hours."""

UNKNOWN = 0.08
"""Standard deviation of the logarithm of a layout's time before it is measured, as is usual of the
calibrated formulas (`mixture.USUAL`)."""


def few_nodes(request: CampaignCreate, space: SearchSpace) -> FewNodes:
    """Return on how few nodes a campaign's search measures: as was asked, or where most is learned
    for a node-hour.

    Raises:
        InvalidInputs: field `screen_nodes`: no layout can be measured on so many nodes.
    """
    if request.screen_nodes == "off":
        return FewNodes(nodes=None, reason="All trials run in full, as asked.")
    layouts = Layouts.of(space, objective=request.objective)
    full = int(layouts.lattice["num_nodes"].max())
    if isinstance(request.screen_nodes, int):
        _refuse_useless(request, space, layouts, full=full)
        reason = f"Trials run on {_nodes(request.screen_nodes)} and stand for {full}, as asked."
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
        nodes: share * told_share(nodes, full) / nodes
        for nodes, share in covered.items()
        if share >= COVERED
    }
    if not worth:
        return FewNodes(
            nodes=None,
            reason=(
                f"All trials run in full: on {_nodes(most)} or fewer, {LEAST_REPLICAS} replicas "
                "fit of too few of the promising layouts."
            ),
        )
    nodes = max(worth, key=lambda nodes: (worth[nodes], -nodes))
    return FewNodes(
        nodes=nodes,
        reason=(
            f"Trials run on {_nodes(nodes)} and stand for {full}: {LEAST_REPLICAS} replicas or "
            f"more of {covered[nodes]:.0%} of the promising layouts fit there, and a trial tells "
            f"{told_share(nodes, full):.0%} of what one on {_nodes(full)} does."
        ),
    )


def told_share(nodes: int, full: int) -> float:
    """Return how much a trial on few nodes tells of a layout's time on all of them, as a share of
    what a trial there does: the information in nats, `log(1 + unknown/left open)/2`, of both."""
    left_open = REPEATS**2 + (SPREAD_OF_A_DOUBLING * np.log2(full / nodes)) ** 2
    narrow, wide = (np.log1p(UNKNOWN**2 / variance) for variance in (left_open, REPEATS**2))
    return float(narrow / wide)


def stand_in(strategy: Strategy, *, nodes: int) -> Strategy:
    """Return the same with fewer replicas: each does what it would do among all."""
    return replace(strategy, num_nodes=nodes)


def narrowed(lattice: Lattice, nodes: int) -> Lattice:
    """Return the `stand_in` of every strategy."""
    columns = {**lattice.columns, "num_nodes": np.full(len(lattice), nodes)}
    return Lattice(columns=columns, gpus_per_node=lattice.gpus_per_node)


def can_stand_in(space: SearchSpace, lattice: Lattice, nodes: int) -> Mask:
    """Return which strategies have more nodes, and are legal with LEAST_REPLICAS or more on so few;
    shape (n,). The global batch is not theirs to keep."""
    narrow = narrowed(lattice, nodes)
    broken = rule_masks(
        narrow, space.transformer, space.machine, GlobalBatch(), program=space.program
    )
    illegal = np.logical_or.reduce(list(broken.values()))
    enough = narrow.data_parallel >= LEAST_REPLICAS
    return np.asarray((lattice["num_nodes"] > nodes) & enough & ~illegal)


def _refuse_useless(
    request: CampaignCreate, space: SearchSpace, layouts: Layouts, *, full: int
) -> None:
    nodes = request.screen_nodes
    assert isinstance(nodes, int)
    if not request.protocol.confirmations:
        reason = "what was measured on few nodes has to be confirmed on all of them"
        valid = "protocol.confirmations of 1 or more, or screen_nodes off"
        raise InvalidInputs([InvalidInput("screen_nodes", nodes, reason, valid=valid)])
    if not can_stand_in(space, layouts.lattice, nodes).any():
        reason = f"no layout of the space has {LEAST_REPLICAS} replicas on so few nodes"
        if nodes >= full:
            reason = f"strategies have {_nodes(full)} at most"
        valid = _valid_widths(space, layouts, full)
        raise InvalidInputs([InvalidInput("screen_nodes", nodes, reason, valid=valid)])


def _valid_widths(space: SearchSpace, layouts: Layouts, full: int) -> str:
    possible = [
        nodes
        for nodes in _widths(layouts.lattice, full - 1)
        if can_stand_in(space, layouts.lattice, nodes).any()
    ]
    return f"auto, off, {', '.join(map(str, possible))}" if possible else "auto, off"


def _promising(layouts: Layouts) -> Lattice:
    """Return the best by prediction, rows being in that order already."""
    fits = np.flatnonzero(layouts.memory_gib <= layouts.memory_limit_gib)
    chosen: Integers = fits if len(fits) else np.arange(len(layouts))
    return layouts.lattice.take(chosen[:PROMISING])


def _widths(lattice: Lattice, most: int) -> list[int]:
    """Return the numbers of nodes up to `most` that hold 2, 4, 8, … replicas of some strategy."""
    gpus = lattice.gpus_per_node
    needed = {
        replicas * int(each)
        for each in np.unique(lattice.model_parallel)
        for replicas in (LEAST_REPLICAS << doubling for doubling in range(most.bit_length() + 3))
    }
    return sorted({n // gpus for n in needed if n % gpus == 0 and n <= most * gpus})


def _fits_on(space: SearchSpace, lattice: Lattice, nodes: int) -> Mask:
    """Return which can be stood for on so many nodes, by rule and by predicted memory."""
    possible = can_stand_in(space, lattice, nodes)
    if possible.any():
        rows = np.flatnonzero(possible)
        narrow = narrowed(lattice.take(rows), nodes)
        predicted = estimate(space.transformer, space.machine, narrow)
        possible[rows] = predicted.fits
    return possible


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Runs:
    """What may be run of a space of n layouts: each itself, then the m stand-ins of some.

    Attributes:
        lattice: of all n + m.
        layout: shape (n + m,), the layout that each run tells of.
        stand_in: shape (n,), the run that is a layout's stand-in; its own run where it has none.
        log_work: shape (n + m,), see `Layouts`: of the layout, whatever stands for it.
    """

    lattice: Lattice
    layout: Integers
    stand_in: Integers
    log_work: Floats

    @classmethod
    def of(cls, space: SearchSpace, layouts: Layouts, *, nodes: int | None) -> Runs:
        lattice, every = layouts.lattice, np.arange(len(layouts))
        if nodes is None:
            return cls(lattice=lattice, layout=every, stand_in=every, log_work=layouts.log_work)
        rows = np.flatnonzero(can_stand_in(space, lattice, nodes))
        narrow = narrowed(lattice.take(rows), nodes)
        columns = {name: np.concatenate([lattice[name], narrow[name]]) for name in lattice.columns}
        stand_ins = every.copy()
        stand_ins[rows] = len(lattice) + np.arange(len(rows))
        layout = np.concatenate([every, rows])
        return cls(
            lattice=Lattice(columns=columns, gpus_per_node=lattice.gpus_per_node),
            layout=layout,
            stand_in=stand_ins,
            log_work=layouts.log_work[layout],
        )

    def __len__(self) -> int:
        return len(self.lattice)

    @property
    def narrow(self) -> Integers:
        """The runs that are stand-ins, shape (m,)."""
        return np.arange(len(self.stand_in), len(self))
