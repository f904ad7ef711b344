"""Automatic values of dimensions: what is worth searching for a model, a machine and a trainer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from search_spaces.machine import Machine, offers, offers_bf16
from search_spaces.stages import chunk_layers
from search_spaces.transformer import ActivationCheckpointing, Transformer

LARGEST_AUTOMATIC_MICRO_BATCH = 16
LARGEST_AUTOMATIC_STAGES = 6
LEAST_PART_OF_SEQUENCE = 2048  # tokens of a GPU in published runs: 8k on 4, 128k on 16
LEAST_FULL = 0.8  # of the layers that the fullest stage's number makes room for
MOST_LACKING = 3  # layers of 64 in NVIDIA's virtual stages of DeepSeek-V3 and Kimi-K2


class Capabilities(Protocol):
    """What the values depend on of `search_spaces.program.ProgramCapabilities`."""

    @property
    def activation_checkpointing(self) -> tuple[ActivationCheckpointing, ...]: ...

    def declares(self, dimension: str) -> tuple[bool | int | float | str, ...]: ...


@dataclass(frozen=True, kw_only=True)
class AutomaticFor:
    """Inputs of automatic values; `nodes` is the maximum."""

    transformer: Transformer
    machine: Machine
    nodes: int
    program: Capabilities

    @property
    def gpus(self) -> int:
        return self.nodes * self.machine.gpus_per_node


def powers_of_two(most: int) -> list[int]:
    return [1 << exponent for exponent in range(most.bit_length())]


def divisors(number: int) -> list[int]:
    low = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return [*low, *(number // d for d in reversed(low) if d * d != number)]


def activation_checkpointing(given: AutomaticFor) -> tuple[str, ...]:
    sets = map(str, given.program.declares("activation_checkpointing"))
    useful = filter(given.transformer.has_parts, sets)
    return (*given.program.activation_checkpointing, *useful)


def micro_batch_size(_: AutomaticFor) -> set[int]:
    return set(powers_of_two(LARGEST_AUTOMATIC_MICRO_BATCH))


def virtual_stages(given: AutomaticFor) -> set[int]:
    """Return divisors of the layers, and numbers with which some pipeline's chunks lack few layers
    of equal length."""
    layers, mtp = given.transformer.num_layers, given.transformer.mtp_layers
    pipelines = [stages for stages in pipeline_parallel(given) if stages > 1]

    def suits(stages: int, virtual: int) -> bool:
        if stages * virtual > layers:
            return False
        chunks = chunk_layers(layers, stages * virtual, mtp_layers=mtp)
        return max(chunks) * len(chunks) - layers <= MOST_LACKING

    return {
        each
        for each in range(1, LARGEST_AUTOMATIC_STAGES + 1)
        if layers % each == 0 or any(suits(stages, each) for stages in pipelines)
    }


def precision(given: AutomaticFor) -> tuple[str, ...]:
    if given.machine.peak_tflops is None:
        return ("fp32",)
    wide = ("bf16", "fp16") if offers_bf16(given.machine) else ("fp16",)
    narrow = map(str, given.program.declares("precision"))
    return (*wide, *(each for each in narrow if offers(given.machine, each)))


def tensor_parallel(given: AutomaticFor) -> set[int]:
    gpus = given.machine.gpus_per_node
    return {*powers_of_two(gpus), *divisors(gpus)}


def pipeline_parallel(given: AutomaticFor) -> set[int]:
    """Return numbers of stages that divide the layers, and those that divide all GPUs and lose
    little by uneven stages."""
    layers, gpus = given.transformer.num_layers, given.gpus
    even = {stages for stages in divisors(layers) if stages <= gpus}
    return even | {
        stages
        for stages in divisors(gpus)
        if stages <= layers and layers >= LEAST_FULL * stages * -(-layers // stages)
    }


def context_parallel(given: AutomaticFor) -> set[int]:
    """Return powers of two that a sequence is worth being cut into."""
    tokens = given.transformer.seq_length
    parts = powers_of_two(min(given.gpus, tokens // LEAST_PART_OF_SEQUENCE))
    return {1, *(part for part in parts if tokens % (2 * part) == 0)}


def expert_parallel(given: AutomaticFor) -> set[int]:
    experts = given.transformer.experts
    return {part for part in divisors(experts.num_experts if experts else 1) if part <= given.gpus}


def expert_tensor_parallel(given: AutomaticFor) -> set[int]:
    if given.transformer.experts is None:
        return {1}
    return tensor_parallel(given)


def num_nodes(given: AutomaticFor) -> set[int]:
    return {*powers_of_two(given.nodes), given.nodes}
