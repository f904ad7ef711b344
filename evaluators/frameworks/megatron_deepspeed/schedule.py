"""The runs of a trial: their batches, their lengths, and the iterations that count.

Two GAS values share one start-up: the batch is ramped up from the smaller to the larger. Such a
run is counted in samples, because Megatron's ramp-up refuses `--train-iters`. With a ramp of one
step, `--rampup-batch-size START STEP SAMPLES`, Megatron asks before each iteration how many
samples were consumed: fewer than SAMPLES, and the batch is START; otherwise START + STEP, which is
the global batch size. So n iterations of the smaller batch come before exactly m of the larger one
where SAMPLES is n x START and `--train-samples` is SAMPLES + m x (START + STEP). DeepSpeed's
engine is told the batch before each iteration, and its configuration holds the first.

n and m are fixed at the start: n is the least number of iterations and m the most, of which a run
is ended as soon as it has measured enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evaluators.cluster.profile import MegatronVariant
from evaluators.frameworks.megatron_deepspeed.arguments import Argument, arguments, uses_deepspeed
from evaluators.trial import TrialProtocol
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

NEVER = "1000000"
"""Iterations between evaluations and checkpoints: beyond the end of any trial."""

QUIET: tuple[Argument, ...] = (
    ("--log-interval", "1"),
    ("--eval-iters", "0"),
    ("--eval-interval", NEVER),
    ("--save-interval", NEVER),
    ("--lr", "1.0e-4"),
)
"""A line per iteration, and nothing in between. The learning rate does not change times; it must be
above zero, or Megatron never reports its memory."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Successive iterations of a run at one GAS.

    Attributes:
        global_batch_size: samples, as the log's line of each of these iterations has it.
        first_iteration: as the log counts, from 1.
        warmup_iterations: at the beginning, excluded; the others are measured.
        measured_iterations: maximum; 0 if all are warm-up.
        least_iterations: minimum measured iterations if the run was ended early.
    """

    gradient_accumulation_steps: int
    global_batch_size: int
    first_iteration: int
    warmup_iterations: int
    measured_iterations: int
    least_iterations: int

    @property
    def iterations(self) -> int:
        return self.warmup_iterations + self.measured_iterations

    @property
    def samples(self) -> int:
        return self.iterations * self.global_batch_size

    @property
    def measured(self) -> range:
        first = self.first_iteration + self.warmup_iterations
        return range(first, first + self.measured_iterations)


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One start of the entry script.

    Attributes:
        strategy: with the GAS of the first segment, for which DeepSpeed is configured.
        segments: in order; the batch grows from one to the next.
        arguments: of model, layout and schedule, without data and tokenizer.
    """

    strategy: Strategy
    segments: tuple[Segment, ...]
    arguments: tuple[Argument, ...]

    @property
    def iterations(self) -> int:
        return sum(segment.iterations for segment in self.segments)

    def given_up_after(self, iteration: int) -> PlannedRun:
        """Return the part of the run up to the iteration at which it was given up."""
        reached = [segment for segment in self.segments if iteration >= segment.measured.start]
        latest = replace(
            reached[-1],
            measured_iterations=iteration - reached[-1].measured.start + 1,
            least_iterations=0,
        )
        return replace(self, segments=(*reached[:-1], latest))

    @property
    def uses_deepspeed(self) -> bool:
        return uses_deepspeed(self.strategy)


def trial_runs(
    transformer: Transformer,
    machine: Machine,
    strategy: Strategy,
    protocol: TrialProtocol,
    variant: MegatronVariant = "main",
    *,
    flash_attention: str = "",
) -> list[PlannedRun]:
    """Return the runs that measure every GAS of the protocol, in order, two values per run.

    Args:
        flash_attention: see `arguments`.

    Raises:
        InvalidInput: this variant cannot run the strategy, or not at a GAS of the protocol.
    """
    values = sorted(set(protocol.values))
    stages = strategy.pipeline_parallel
    for gas in values:
        if strategy.virtual_stages > 1 and gas % stages:
            raise InvalidInput(
                "gradient_accumulation_steps",
                gas,
                "interleaved pipelines take micro-batches in groups, one for each stage",
                valid=f"a multiple of pipeline_parallel ({stages})",
            )
    runs = []
    for start in range(0, len(values), 2):
        twins = [strategy.with_accumulation(gas) for gas in values[start : start + 2]]
        segments = _segments(twins, machine, protocol)
        layout = arguments(
            transformer, machine, twins[-1], variant, flash_attention=flash_attention
        )
        run = PlannedRun(
            strategy=twins[0],
            segments=segments,
            arguments=(*layout, *_length(segments), *QUIET),
        )
        runs.append(run)
    return runs


def _segments(
    twins: Sequence[Strategy], machine: Machine, protocol: TrialProtocol
) -> tuple[Segment, ...]:
    """Return the segments of a run with these GAS values, one or two and rising; it begins with a
    warm-up."""
    segments: list[Segment] = []
    for place, twin in enumerate(twins):
        measured = twin.gradient_accumulation_steps in protocol.accumulations
        least, most = protocol.measured_iterations, protocol.measured_iterations
        if place == len(twins) - 1:
            least, most = protocol.fewest_iterations, protocol.most
        segment = Segment(
            gradient_accumulation_steps=twin.gradient_accumulation_steps,
            global_batch_size=twin.global_batch_size(machine.gpus_per_node),
            first_iteration=1 + sum(before.iterations for before in segments),
            warmup_iterations=0 if place else protocol.warmup_iterations,
            measured_iterations=most if measured else 0,
            least_iterations=least if measured else 0,
        )
        segments.append(segment)
    return tuple(segments)


def _length(segments: Sequence[Segment]) -> list[Argument]:
    if len(segments) == 1:
        return [("--train-iters", str(segments[0].iterations))]
    small, large = segments
    step = large.global_batch_size - small.global_batch_size
    ramp = (str(small.global_batch_size), str(step), str(small.samples))
    samples = str(small.samples + large.samples)
    return [("--train-samples", samples), ("--rampup-batch-size", *ramp)]
