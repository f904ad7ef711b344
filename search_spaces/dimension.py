"""One dimension of a search space: from what a user chooses to the values that are tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt
from typing import Any, TypeAlias, cast

import numpy as np

from search_spaces.batch import GlobalBatch
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.strategy import DIMENSIONS
from search_spaces.strategy import Scalar as Scalar
from search_spaces.transformer import Transformer

DimensionChoice: TypeAlias = Scalar | Sequence[Scalar] | Mapping[str, int]
"""`"auto"`, one value, a list, or `{"minimum", "maximum", "step"}`."""

AUTO = "auto"
MAIN = DIMENSIONS[:6]  # automatic where nothing is said; the others are fixed
LAYOUT = ("tensor_parallel", "pipeline_parallel", "micro_batch_size", "zero_stage")
"""What a layout is made of. A choice for one of these names layouts: nothing is added then, but for
what the program itself says is searched."""
MEMORY_FOR_TIME = ("sequence_parallel", "activation_checkpointing")
"""In the order in which a space that gets too large gives up searching them."""
MOST_VALUES = 1024  # of one dimension: more is a slip, and would not be searched anyhow

SWITCHES = ("sequence_parallel", "flash_attention")
NAMED: Mapping[str, tuple[str, ...]] = {
    "activation_checkpointing": ("none", "selective", "full"),
    "precision": ("fp32", "bf16", "fp16"),
}
LARGEST_WHOLE = 1_000_000
BOUNDS: Mapping[str, tuple[int, int]] = {"zero_stage": (0, 3)}

WITHOUT_BF16 = ("P100", "V100", "T4")  # GPUs from before Ampere
LARGEST_AUTOMATIC_MICRO_BATCH = 16
LARGEST_AUTOMATIC_STAGES = 4
LEAST_FULL = 0.8  # of the layers that the fullest stage's number makes room for
ACCUMULATIONS_PER_STAGE = 4  # from there on a pipeline's bubble is under a fifth of an iteration
LEAST_OF_LARGEST_ACCUMULATIONS = 32


def values_of(dimension: str, choice: DimensionChoice) -> tuple[Scalar, ...]:
    """Return the values that a choice other than `"auto"` means, without duplicates; numbers
    ascending.

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
    return tuple(unique) if dimension in NAMED else tuple(sorted(unique, key=int))


def describe_valid(dimension: str) -> str:
    """Return what a dimension can be, in words."""
    if dimension in SWITCHES:
        return "true or false"
    if dimension in NAMED:
        return ", ".join(NAMED[dimension])
    low, high = BOUNDS.get(dimension, (1, LARGEST_WHOLE))
    return f"whole numbers from {low} to {high}"


def _refuse_wrong(dimension: str, value: object) -> None:
    if dimension in SWITCHES:
        right = type(value) is bool
    elif dimension in NAMED:
        right = value in NAMED[dimension]
    else:
        low, high = BOUNDS.get(dimension, (1, LARGEST_WHOLE))
        right = type(value) is int and low <= value <= high
    if not right:
        reason = "not a value of this dimension"
        raise InvalidInput(dimension, value, reason, valid=f"{describe_valid(dimension)}, or auto")


def _values_of_range(dimension: str, choice: Mapping[str, Any]) -> list[Scalar]:
    if dimension in NAMED or dimension in SWITCHES:
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
    """Return what an optional dimension is where nothing is said of it."""
    defaults: dict[str, Scalar] = {
        "activation_checkpointing": "full",
        "sequence_parallel": False,
        "flash_attention": True,
        "virtual_stages": 1,
        "precision": default_precision(machine),
    }
    return (defaults[dimension],)


def unsaid(
    values: Mapping[str, tuple[Scalar, ...]], machine: Machine, program: ProgramCapabilities
) -> Mapping[str, tuple[Scalar, ...]]:
    """Return the automatic values of the dimensions that trade time for memory.

    Which is best depends on the layout, so they are part of the search, but for what only repeats
    another strategy: with FlashAttention no scores are kept, so selective checkpointing saves no
    memory, and only works the attention out twice (Megatron-DeepSpeed ignores it then); without
    tensor parallelism there are no ranks to cut sequences over. On CPUs memory rarely decides, so
    there only the dimensions that the program itself searches are returned.

    Args:
        values: of the other dimensions.

    Returns:
        Dimension -> values, in the order of `MEMORY_FOR_TIME`.
    """
    cut = (False, True) if program.sequence_parallel else (False,)
    flash_alone = values["flash_attention"] == (True,)
    kinds = program.activation_checkpointing
    found: dict[str, tuple[Scalar, ...]] = {
        "sequence_parallel": cut if max(values["tensor_parallel"], key=int) != 1 else (False,),
        "activation_checkpointing": tuple(
            kind for kind in kinds if kind != "selective" or not flash_alone
        ),
    }
    searched = MEMORY_FOR_TIME if machine.peak_tflops is not None else program.searched
    return {name: found[name] for name in MEMORY_FOR_TIME if name in searched}


def default_precision(machine: Machine) -> str:
    """Return bf16; fp16 on GPUs that lack it, fp32 where no 16-bit peak is known (a CPU)."""
    if machine.peak_tflops is None:
        return "fp32"
    return "bf16" if offers_bf16(machine) else "fp16"


def offers_bf16(machine: Machine) -> bool:
    return not any(gpu in machine.gpu for gpu in WITHOUT_BF16)


def automatic(
    dimension: str,
    transformer: Transformer,
    machine: Machine,
    *,
    nodes: int,
    program: ProgramCapabilities = ANY_PROGRAM,
) -> tuple[Scalar, ...]:
    """Return the values of `"auto"`, for every dimension but gradient_accumulation_steps.

    What the program cannot do is left out, in the dimensions that depend on it.
    """
    if dimension == "precision":
        sixteen_bit = ("bf16", "fp16") if offers_bf16(machine) else ("fp16",)
        return ("fp32",) if machine.peak_tflops is None else sixteen_bit
    if dimension == "sequence_parallel" and not program.sequence_parallel:
        return (False,)
    if dimension in SWITCHES:
        return (False, True)
    if dimension == "activation_checkpointing":
        return program.activation_checkpointing
    gpus = machine.gpus_per_node
    by_layers = divisors(transformer.num_layers)
    uneven = _uneven_pipelines(transformer, nodes * gpus) if program.uneven_stages else []
    most_virtual = LARGEST_AUTOMATIC_STAGES if program.virtual_stages else 1
    whole = {
        "tensor_parallel": {*powers_of_two(gpus), *divisors(gpus)},
        "pipeline_parallel": {stages for stages in [*by_layers, *uneven] if stages <= nodes * gpus},
        "micro_batch_size": set(powers_of_two(LARGEST_AUTOMATIC_MICRO_BATCH)),
        "zero_stage": set(range(4)),
        "num_nodes": {*powers_of_two(nodes), nodes},
        "virtual_stages": {stages for stages in by_layers if stages <= most_virtual},
    }
    return tuple(sorted(whole[dimension]))


def _uneven_pipelines(transformer: Transformer, gpus: int) -> list[int]:
    """Return numbers of stages that divide all GPUs and not the layers, and lose little by it."""
    layers = transformer.num_layers
    return [
        stages
        for stages in divisors(gpus)
        if stages <= layers
        and layers % stages
        and layers >= LEAST_FULL * stages * -(-layers // stages)
    ]


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
    samples = _samples_per_micro_batch(values, machine)
    least = [-(-batch.least // s) for s in samples]
    if batch.maximum is None:
        stages = max(int(stages) for stages in values["pipeline_parallel"])
        highest = max(ACCUMULATIONS_PER_STAGE * stages, LEAST_OF_LARGEST_ACCUMULATIONS, *least)
        return tuple(powers_of_two(1 << (highest - 1).bit_length()))
    most = [batch.maximum // s for s in samples]
    fitting = {_roundest(low, high) for low, high in zip(least, most, strict=True) if low <= high}
    return tuple(sorted(fitting)) or (1,)


def _samples_per_micro_batch(
    values: Mapping[str, tuple[Scalar, ...]], machine: Machine
) -> list[int]:
    """Return every micro_batch_size x data_parallel that the other dimensions allow."""
    tensor, pipeline, micro_batch, nodes = np.meshgrid(
        *(
            np.array(values[name], dtype=np.int64)
            for name in ("tensor_parallel", "pipeline_parallel", "micro_batch_size", "num_nodes")
        )
    )
    replicas, left_over = np.divmod(nodes * machine.gpus_per_node, tensor * pipeline)
    return [int(s) for s in np.unique((micro_batch * replicas)[(left_over == 0) & (replicas > 0)])]


def _roundest(low: int, high: int) -> int:
    """Return the largest power of two from `low` to `high`, or `high` where there is none."""
    power = 1 << (high.bit_length() - 1)
    return power if power >= low else high


def powers_of_two(most: int) -> list[int]:
    """Return 1, 2, 4, … up to `most`."""
    return [1 << exponent for exponent in range(most.bit_length())]


def divisors(number: int) -> list[int]:
    """Return all divisors of a positive number, in rising order."""
    low = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return [*low, *(number // d for d in reversed(low) if d * d != number)]
