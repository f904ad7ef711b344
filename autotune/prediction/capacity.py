"""How many nodes a model needs at least, by predicted memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autotune.cost_model import Estimate, Parameters, estimate
from autotune.resolution import space_of
from autotune.schemas import SpaceSpec
from search_spaces.errors import InvalidInput
from search_spaces.space import SearchSpace

STEPS = 8
"""Node counts that are tried between one power of two and the next, before the gap is refined."""

FINEST = 64
"""Node counts that are tried within a gap: the answer is exact where that is all of them."""


def fits_nowhere(
    space: SearchSpace,
    estimated: Estimate,
    *,
    spec: SpaceSpec,
    parameters: Parameters | None = None,
) -> InvalidInput:
    """Why no legal strategy of `space` fits, and the least number of nodes that would do.

    Args:
        estimated: of the space's lattice, none of which fits.
        spec: what the space was built from; it is built again with more nodes.
        parameters: that the estimate was made with; general knowledge where not given.
    """
    machine = space.machine
    leanest = float(np.min(estimated.memory_gib))
    needs = (
        f"{space.transformer.name} fits nowhere within {nodes_of(space.nodes)}: the leanest "
        f"strategy needs {leanest:.3g} GiB of each GPU's {machine.memory_gib:g} "
        f"({estimated.memory_limit_gib:.3g} of them usable)"
    )
    enough = least_nodes(space, spec=spec, parameters=parameters)
    if enough is None:
        whole = f"the whole of {machine.name}, {nodes_of(machine.max_nodes)},"
        reason = f"{needs}; not even {whole} would do"
        return InvalidInput("nodes", space.nodes, reason, valid="a smaller model or a wider space")
    reason = f"{needs}; the least number of nodes that would do is {enough}"
    return InvalidInput("nodes", space.nodes, reason, valid=f"{enough} or more")


def nodes_of(count: int) -> str:
    return f"{count} node{'s' if count != 1 else ''}"


def least_nodes(
    space: SearchSpace, *, spec: SpaceSpec, parameters: Parameters | None = None
) -> int | None:
    """The fewest nodes beyond the space's own on which some legal strategy is predicted to fit.

    Exact to one part in FINEST between two powers of two; None if not even the whole machine does.
    """

    def fits(nodes: int) -> bool:
        return fits_on(space, spec=spec, nodes=nodes, parameters=parameters)

    below = space.nodes
    for nodes in _node_counts(space.nodes, space.machine.max_nodes):
        if fits(nodes):
            between = range(below + 1, nodes, -(-(nodes - below) // FINEST))
            return next((n for n in between if fits(n)), nodes)
        below = nodes
    return None


def _node_counts(above: int, most: int) -> Iterator[int]:
    """Ascending from above `above` to `most`: each power of two and STEPS - 1 counts on the way."""
    low = 1 << (above.bit_length() - 1)
    while low < most:
        step = max(low // STEPS, 1)
        yield from (n for n in range(low + step, 2 * low + 1, step) if above < n < most)
        low *= 2
    if above < most:
        yield most


def fits_on(
    space: SearchSpace, *, spec: SpaceSpec, nodes: int, parameters: Parameters | None = None
) -> bool:
    """Whether some legal strategy on exactly `nodes` nodes is predicted to fit."""
    fixed = spec.model_copy(update={"num_nodes": nodes})
    lattice = space_of(fixed, space.transformer, space.machine, nodes=nodes).lattice()
    estimated = estimate(space.transformer, space.machine, lattice, parameters=parameters)
    return bool(np.any(estimated.fits))
