"""The content of a training log: runs, their iterations, and events around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evaluators.training_log.cause import Cause


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """One iteration line. Missing and unreadable values are None.

    Attributes:
        line: position among the run's iteration lines, from 1, including those whose time was lost
            but whose number is readable.
        number: by the program's count; the bundled trainer starts again at each GAS.
        of: number of requested iterations.
        elapsed_s: seconds of one iteration; a mean if not every iteration is logged.
        accumulation: GAS, which only the bundled trainer's lines name.
        loss: None also if it was not finite; `nan` is then set.
        skipped: iterations that the line counts as skipped.
        nan: whether a loss or a gradient was not a number.
        overflows: steps that DeepSpeed skipped since the previous line; many versions do not count
            them in `skipped`. Ranks write concurrently, so one may appear on the wrong side of an
            iteration line.
        after_evaluation: whether an evaluation ran since the previous line, which `elapsed_s` may
            include.
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
        return not (self.skipped or self.nan or self.overflows)


@dataclass(frozen=True, kw_only=True)
class PeakMemory:
    """Peak memory of one rank in GiB. Megatron's MB are 2**20 bytes.

    Attributes:
        allocated_gib: of tensors.
        reserved_gib: that torch's allocator took from the device, including fragments: what must
            fit, and therefore the peak that is reported and compared.
    """

    allocated_gib: float | None = None
    reserved_gib: float | None = None


@dataclass(frozen=True, kw_only=True)
class PowerSample:
    """Watts of all GPUs of a node.

    Attributes:
        after: number of the run's iteration lines before it; the iteration whose `line` is
            `after` + 1 was running.
    """

    watts: float
    after: int


@dataclass(frozen=True, kw_only=True)
class Power:
    """Power samples of each node, by name.

    Attributes:
        samples: in the log's order. If there were too many, every second one was dropped between
            the first and the last with the same `after`.
        absent: why a node has no samples.
    """

    samples: Mapping[str, tuple[PowerSample, ...]] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MicroBatches:
    """How DeepSpeed splits the batch of each replica.

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
        iterations: in the log's order, only those with a certain time.
        damaged: numbers of iterations whose time was lost because another rank's output broke
            the line.
        memory: by rank; Megatron logs it only for the first data-parallel replica.
        overflows: steps skipped for an overflow, including those after the last iteration line.
        evaluations: number of logged evaluations.
        micro_batches: according to DeepSpeed's pipeline engine (`CONFIG: micro_batches=…
            micro_batch_size=…`), which may differ from the training program's request. The last
            line counts; None if there is none.
        failure: root cause of its end, if the log has an error of any kind. A successful run may
            have one too, since an error that it survived looks the same.
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
    """The content of one file.

    Attributes:
        runs: of all starts that were appended to the file.
        cut: whether the last line is incomplete; it is then ignored.
    """

    runs: tuple[LoggedRun, ...] = ()
    cut: bool = False

    @property
    def last(self) -> LoggedRun:
        return self.runs[-1] if self.runs else LoggedRun()
