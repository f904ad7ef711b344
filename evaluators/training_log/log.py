"""What a training log tells: runs, their iterations, and what went on around these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evaluators.training_log.cause import Cause


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """One iteration line. What the line does not say, or says unreadably, is None.

    Attributes:
        line: which of the run's iteration lines it is, from 1. Those whose time was lost count
            too, as long as their number can be read.
        number: as the program counts; the bundled trainer begins anew at each GAS.
        of: how many the program was asked for.
        elapsed_s: seconds of one iteration (a mean, where not each one is logged).
        accumulation: GAS, where the line names it (only the bundled trainer's does).
        loss: None also where it was no finite number: then `nan` is set.
        skipped: iterations that the line counts as skipped.
        nan: a loss or a gradient was no number.
        overflows: steps that DeepSpeed skipped since the line before, which many a version does
            without counting them in `skipped`. Ranks write to the log side by side, so one may
            stand on the wrong side of an iteration line.
        after_evaluation: an evaluation ran since the line before, and may be in `elapsed_s`.
    """

    line: int
    number: int
    elapsed_s: float
    of: int | None = None
    accumulation: int | None = None
    global_batch_size: int | None = None
    consumed_samples: int | None = None
    loss: float | None = None
    loss_scale: float | None = None
    grad_norm: float | None = None
    skipped: int | None = None
    nan: bool = False
    overflows: int = 0
    after_evaluation: bool = False

    @property
    def stepped(self) -> bool:
        """Whether, as far as the log tells, the optimizer's step is in its time."""
        return not (self.skipped or self.nan or self.overflows)


@dataclass(frozen=True, kw_only=True)
class PeakMemory:
    """The most memory that one rank took, GiB. Megatron prints MB and means 2**20 bytes.

    Attributes:
        allocated_gib: the most that tensors took.
        reserved_gib: the most that torch's allocator took from the device for them. It is what
            must fit, fragments included; so it is the peak that is reported and compared.
    """

    allocated_gib: float | None = None
    reserved_gib: float | None = None


@dataclass(frozen=True, kw_only=True)
class PowerSample:
    """Watts of all GPUs of a node.

    Attributes:
        at_s: seconds of Unix time.
        after: how many of the run's iteration lines came before it: what runs while `after` is
            n is the iteration whose `line` is n + 1.
    """

    at_s: float
    watts: float
    after: int


@dataclass(frozen=True, kw_only=True)
class Power:
    """The power that was sampled of each node, by its name.

    Attributes:
        samples: in the log's order. Where there were too many to keep, every second one was
            left out between the first and the last of those that share an `after`.
        absent: why a node has no samples.
    """

    samples: Mapping[str, tuple[PowerSample, ...]] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MicroBatches:
    """How DeepSpeed cuts up the batch of each replica.

    Attributes:
        count: micro-batches of an iteration (gradient accumulation steps).
        size: samples of a micro-batch.
    """

    count: int
    size: int


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """One start of a training program.

    Attributes:
        iterations: in the log's order, each with a time that is certain.
        damaged: numbers of the iterations whose line was broken by another rank's output so
            that their time was lost.
        memory: by rank; Megatron tells it for ranks of the first data-parallel replica only.
        overflows: steps skipped for an overflow, those after the last iteration line too.
        evaluations: how many were logged.
        micro_batches: as DeepSpeed's pipeline engine says of itself (`CONFIG: micro_batches=…
            micro_batch_size=…`), which need not be what the training program meant; None where
            the log does not say it. The last one counts.
        failure: the root cause of its end, if the log has an error of any kind. A run that went
            well may have one too: what it survived looks the same.
    """

    iterations: tuple[Iteration, ...] = ()
    damaged: tuple[int, ...] = ()
    memory: Mapping[int, PeakMemory] = field(default_factory=dict)
    overflows: int = 0
    evaluations: int = 0
    power: Power = field(default_factory=Power)
    micro_batches: MicroBatches | None = None
    failure: Cause | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingLog:
    """All that one file tells.

    Attributes:
        runs: those of several starts that were appended to one file; none if it tells nothing.
        cut: the file does not end with a whole line. That line is in no figure here.
    """

    runs: tuple[LoggedRun, ...] = ()
    cut: bool = False

    @property
    def power(self) -> tuple[Power, ...]:
        """The power samples of each run."""
        return tuple(run.power for run in self.runs)

    @property
    def last(self) -> LoggedRun:
        """The latest run; an empty one if there is none."""
        return self.runs[-1] if self.runs else LoggedRun()
