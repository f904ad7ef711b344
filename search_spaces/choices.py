"""Choices of a user for a dimension, and the values they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from search_spaces.automatic import AutomaticFor, powers_of_two
from search_spaces.batch import GlobalBatch
from search_spaces.dimensions import BY_NAME, DIVIDING, LARGEST_WHOLE, MEMORY_FOR_TIME, Scalar
from search_spaces.errors import InvalidInput
from search_spaces.groups import ParallelGroups
from search_spaces.machine import Machine, default_precision
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.transformer import Transformer

DimensionChoice: TypeAlias = Scalar | Sequence[Scalar] | Mapping[str, int]
"""`"auto"`, one value, a list, or `{"minimum", "maximum", "step"}`."""

AUTO = "auto"
MOST_VALUES = 1024  # of one dimension: more is a slip, and would not be searched anyhow

OPTIONAL = (MEMORY_FOR_TIME[0], "virtual_stages", *MEMORY_FOR_TIME[1:])
"""Dimensions that are searched by default where there is room, the first to give up first."""

ACCUMULATIONS_PER_STAGE = 4  # from there on a pipeline's bubble is under a fifth of an iteration
LEAST_OF_LARGEST_ACCUMULATIONS = 32


def values_of(dimension: str, choice: DimensionChoice) -> tuple[Scalar, ...]:
    """Return the values of a choice other than `"auto"`, without duplicates; numbers ascending.

    Raises:
        InvalidInput: named by the dimension, for a wrong type, a value beyond what the dimension
            can be, an empty list, or a range that holds nothing.
    """
    if isinstance(choice, Mapping):
        values = _values_of_range(dimension, choice)
    else:
        values = list(choice) if isinstance(choice, list | tuple) else [cast("Scalar", choice)]
    if not 0 < len(values) <= MOST_VALUES:
        reason = f"a list of {len(values)} values" if values else "an empty list"
        raise InvalidInput(dimension, choice, reason, valid=f"1 to {MOST_VALUES} values")
    for value in values:
        _refuse_wrong(dimension, value)
    unique = dict.fromkeys(values)
    return tuple(unique) if BY_NAME[dimension].is_named else tuple(sorted(unique, key=int))


def describe_valid(dimension: str) -> str:
    """Return the valid choices of a dimension, in words."""
    definition = BY_NAME[dimension]
    if definition.is_switch:
        return "true or false"
    if definition.is_named:
        return ", ".join(map(str, definition.values))
    low, high = _bounds(dimension)
    return f"whole numbers from {low} to {high}"


def _bounds(dimension: str) -> tuple[int, int]:
    whole = [int(value) for value in BY_NAME[dimension].values]
    return (min(whole), max(whole)) if whole else (1, LARGEST_WHOLE)


def _refuse_wrong(dimension: str, value: object) -> None:
    definition = BY_NAME[dimension]
    if definition.is_switch:
        right = type(value) is bool
    elif definition.is_named:
        right = value in definition.values
    else:
        low, high = _bounds(dimension)
        right = type(value) is int and low <= value <= high
    if not right:
        reason = "not a value of this dimension"
        raise InvalidInput(dimension, value, reason, valid=f"{describe_valid(dimension)}, or auto")


def _values_of_range(dimension: str, choice: Mapping[str, Any]) -> list[Scalar]:
    if not BY_NAME[dimension].is_counted:
        reason = "this dimension has no ranges"
        raise InvalidInput(dimension, dict(choice), reason, valid=describe_valid(dimension))
    form = '{"minimum": …, "maximum": …, "step": …}, the step optional'
    if not {"minimum", "maximum"} <= set(choice) <= {"minimum", "maximum", "step"}:
        raise InvalidInput(dimension, dict(choice), "not a range", valid=form)
    low, high, step = choice["minimum"], choice["maximum"], choice.get("step", 1)
    if any(type(number) is not int for number in (low, high, step)) or step < 1:
        reason = "a range is made of whole numbers, its step at least 1"
        raise InvalidInput(dimension, dict(choice), reason, valid=form)
    if low > high:
        reason = f"the minimum {low} lies above the maximum {high}"
        raise InvalidInput(dimension, dict(choice), reason, valid=form)
    _refuse_wrong(dimension, low)
    _refuse_wrong(dimension, high)
    return list(range(low, high + 1, step)[: MOST_VALUES + 1])


def fixed_default(dimension: str, machine: Machine) -> tuple[Scalar, ...]:
    """Return the default of an optional dimension."""
    if dimension == "precision":
        return (default_precision(machine),)
    value = BY_NAME[dimension].default
    assert value is not None
    return (value,)


def optional_values(
    values: Mapping[str, tuple[Scalar, ...]],
    transformer: Transformer,
    machine: Machine,
    *,
    nodes: int,
    program: ProgramCapabilities,
) -> Mapping[str, tuple[Scalar, ...]]:
    """Return the automatic values of virtual stages and of the dimensions that trade time for
    memory.

    Which is best depends on the layout, so they are part of the search, but for what only repeats
    another strategy: FlashAttention stores no scores, so selective checkpointing saves no
    memory, and only works the attention out twice (Megatron-DeepSpeed ignores it then); without
    tensor parallelism there are no ranks to cut sequences over. On CPUs memory rarely decides, so
    there only the dimensions that the program itself searches are returned.

    Args:
        values: of the other dimensions.

    Returns:
        Dimension -> values, in the order in which a space that gets too large gives them up.
    """
    searched = OPTIONAL if machine.peak_tflops is not None else program.searched
    found = {
        name: automatic(name, transformer, machine, nodes=nodes, program=program)
        for name in OPTIONAL
        if name in searched
    }
    repeating = {
        "sequence_parallel": True if values["tensor_parallel"] == (1,) else None,
        "activation_checkpointing": "selective" if values["flash_attention"] == (True,) else None,
    }
    return {
        name: tuple(value for value in several if value != repeating.get(name))
        for name, several in found.items()
    }


def automatic(
    dimension: str,
    transformer: Transformer,
    machine: Machine,
    *,
    nodes: int,
    program: ProgramCapabilities = ANY_PROGRAM,
) -> tuple[Scalar, ...]:
    """Return the values of `"auto"`, for every dimension but gradient_accumulation_steps.

    A dimension that the program lacks has only its neutral value.
    """
    definition = BY_NAME[dimension]
    if definition.neutral is not None and not program.varies(dimension):
        return (definition.neutral,)
    assert definition.automatic is not None
    values = definition.automatic(
        AutomaticFor(transformer=transformer, machine=machine, nodes=nodes, program=program)
    )
    return tuple(sorted(values)) if isinstance(values, set) else values


def automatic_accumulations(
    values: Mapping[str, tuple[Scalar, ...]], machine: Machine, batch: GlobalBatch
) -> tuple[int, ...]:
    """Return the values of `"auto"` for gradient_accumulation_steps, from all other dimensions'
    values.

    Where the global batch has an upper bound: for each number of samples that one micro-batch
    takes through all replicas, the most accumulation that keeps within the bounds, rounded down
    to a power of two where the bounds leave room. Otherwise powers of two up to four for each
    pipeline stage, or up to what the lower bound needs.
    """
    replicas = _replicas(values, machine)
    micro_batches = [int(each) for each in values["micro_batch_size"]]
    if batch.maximum is None:
        stages = max(int(stages) for stages in values["pipeline_parallel"])
        usual = max(ACCUMULATIONS_PER_STAGE * stages, LEAST_OF_LARGEST_ACCUMULATIONS)
        fewest = min(micro_batches) * int(replicas.min(initial=LARGEST_WHOLE))
        highest = max(usual, -(-batch.least // fewest))
        powers = powers_of_two(1 << (highest - 1).bit_length())
        return tuple(power for power in powers if power <= LARGEST_WHOLE)
    fitting: set[int] = set()
    for micro_batch in micro_batches:
        samples = micro_batch * replicas
        least = -(-batch.least // samples)
        most = np.minimum(batch.maximum // samples, LARGEST_WHOLE)
        bounds = np.stack([least, most], axis=1)[least <= most]
        fitting |= {_roundest(low, high) for low, high in np.unique(bounds, axis=0).tolist()}
    return tuple(sorted(fitting)) or (1,)


def _replicas(values: Mapping[str, tuple[Scalar, ...]], machine: Machine) -> NDArray[np.int64]:
    names = (*DIVIDING, "num_nodes")
    whole = (np.array(values[name], dtype=np.int64) for name in names)
    columns = dict(zip(names, np.meshgrid(*whole, indexing="ij", sparse=True), strict=True))
    gpus = columns["num_nodes"] * machine.gpus_per_node
    groups = ParallelGroups(**{name: columns[name] for name in DIVIDING}, world_size=gpus)
    return np.unique(groups.data_parallel[groups.left_over == 0])


def _roundest(low: int, high: int) -> int:
    power = 1 << (high.bit_length() - 1)
    return power if power >= low else high
