"""Smaller runs in place of a layout: on fewer nodes with fewer replicas, or with fewer layers in a
shorter pipeline."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autotune.cost_model.columns import Columns
from autotune.schemas.campaigns import FewNodes
from autotune.search.layouts import Floats, Integers, Layouts, Mask
from search_spaces.batch import GlobalBatch
from search_spaces.lattice import Lattice
from search_spaces.rules import rule_masks
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

LEAST_REPLICAS = 2
"""Of a stand-in on fewer nodes: with one replica nothing is reduced over replicas and ZeRO has
nothing to cut."""

SHORTEST_PIPELINE = 2
"""Stages of a stand-in with fewer layers: the first, with the embedding, and the last, with the
logits, are what they are in full."""


@dataclass(frozen=True)
class FewerReplicas:
    """Each replica does the same on `nodes` nodes as among all replicas."""

    nodes: int

    @property
    def num_layers(self) -> None:
        return

    def of(self, strategy: Strategy) -> Strategy:
        return replace(strategy, num_nodes=self.nodes)

    def of_all(self, lattice: Lattice) -> Lattice:
        columns = {**lattice.columns, "num_nodes": np.full(len(lattice), self.nodes)}
        return Lattice(columns=columns, gpus_per_node=lattice.gpus_per_node)

    def possible(self, space: SearchSpace, lattice: Lattice) -> Mask:
        """Return which strategies have more nodes, and are legal with LEAST_REPLICAS or more on so
        few, shape (n,). The global batch may differ."""
        narrow = self.of_all(lattice)
        enough = narrow.data_parallel >= LEAST_REPLICAS
        more = lattice["num_nodes"] > self.nodes
        return np.asarray(more & enough & _legal(narrow, space, space.transformer))


@dataclass(frozen=True, kw_only=True)
class FewerLayers:
    """Each stage has as many layers as in full, with fewer stages on fewer nodes: tensor
    parallelism, micro-batches, replicas and ZeRO are the same.

    Attributes:
        num_layers: of the smaller run.
        full_layers: of the model.
    """

    num_layers: int
    full_layers: int

    def of(self, strategy: Strategy) -> Strategy:
        """Return the stand-in of a strategy."""
        return replace(
            strategy,
            pipeline_parallel=strategy.pipeline_parallel * self.num_layers // self.full_layers,
            num_nodes=strategy.num_nodes * self.num_layers // self.full_layers,
        )

    def of_all(self, lattice: Lattice) -> Lattice:
        """Return the stand-in of each strategy."""
        shorter = {
            name: lattice[name] * self.num_layers // self.full_layers
            for name in ("pipeline_parallel", "num_nodes")
        }
        return Lattice(columns={**lattice.columns, **shorter}, gpus_per_node=lattice.gpus_per_node)

    def possible(self, space: SearchSpace, lattice: Lattice) -> Mask:
        """Return which strategies have even stages, keep SHORTEST_PIPELINE or more of them, and
        fill whole nodes, shape (n,)."""
        stages, nodes = lattice["pipeline_parallel"], lattice["num_nodes"]
        fewer, full = self.num_layers, self.full_layers
        whole = (stages * fewer % full == 0) & (nodes * fewer % full == 0) & (full % stages == 0)
        rows = np.flatnonzero(whole & (stages * fewer >= SHORTEST_PIPELINE * full))
        possible = np.zeros(len(lattice), dtype=np.bool_)
        narrow = self.of_all(lattice.take(rows))
        possible[rows] = _legal(narrow, space, space.transformer.with_layers(fewer))
        return possible


StandIns = FewerReplicas | FewerLayers


def stand_ins_of(screening: FewNodes | None, transformer: Transformer) -> StandIns | None:
    """Return the kind of stand-ins; None if all layouts run in full.

    Args:
        transformer: in full.
    """
    if screening is None:
        return None
    if screening.layers is not None:
        return FewerLayers(num_layers=screening.layers, full_layers=transformer.num_layers)
    return FewerReplicas(screening.nodes) if screening.nodes is not None else None


def _legal(lattice: Lattice, space: SearchSpace, transformer: Transformer) -> Mask:
    broken = rule_masks(lattice, transformer, space.machine, GlobalBatch(), program=space.program)
    return np.asarray(~np.logical_or.reduce(list(broken.values())))


@dataclass(frozen=True, kw_only=True, eq=False)
class Runs:
    """The possible runs of a space of n layouts: each itself, then the m stand-ins of some.

    Attributes:
        lattice: of all n + m runs; `columns` are theirs, each for the model that it runs.
        memory: shape (n + m,), columns of what must fit: a run on fewer nodes itself, which needs
            more than its layout; for a run with fewer layers the layout, which has more micro-
            batches in flight.
        layout: shape (n + m,), the layout of each run.
        stand_in: shape (n,), the run that is a layout's stand-in; its own run if it has none.
        log_work: shape (n + m,), see `Layouts`: of the layout, whichever run stands for it.
    """

    lattice: Lattice
    columns: Columns
    memory: Columns
    layout: Integers
    stand_in: Integers
    log_work: Floats

    @classmethod
    def of(cls, space: SearchSpace, layouts: Layouts, *, stand_ins: StandIns | None) -> Runs:
        lattice, every = layouts.lattice, np.arange(len(layouts))
        possible = np.zeros(len(layouts), dtype=np.bool_)
        if stand_ins is not None:
            possible = stand_ins.possible(space, lattice)
        rows = np.flatnonzero(possible)
        if stand_ins is None or not len(rows):
            columns = Columns.of(space.transformer, lattice)
            return cls(
                lattice=lattice,
                columns=columns,
                memory=columns,
                layout=every,
                stand_in=every,
                log_work=layouts.log_work,
            )
        narrow = stand_ins.of_all(lattice.take(rows))
        both = {name: np.concatenate([lattice[name], narrow[name]]) for name in lattice.columns}
        all_runs = Lattice(columns=both, gpus_per_node=lattice.gpus_per_node)
        stand_in_rows = every.copy()
        stand_in_rows[rows] = len(lattice) + np.arange(len(rows))
        layout = np.concatenate([every, rows])
        if stand_ins.num_layers is None:
            columns = memory = Columns.of(space.transformer, all_runs)
        else:
            in_full = Columns.of(space.transformer, lattice)
            smaller = space.transformer.with_layers(stand_ins.num_layers)
            columns = Columns.stack([in_full, Columns.of(smaller, narrow)])
            memory = in_full.take(layout)
        return cls(
            lattice=all_runs,
            columns=columns,
            memory=memory,
            layout=layout,
            stand_in=stand_in_rows,
            log_work=layouts.log_work[layout],
        )

    def __len__(self) -> int:
        return len(self.lattice)

    @property
    def narrow(self) -> Integers:
        return np.arange(len(self.stand_in), len(self))
