"""The content of the bundled trainer's log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evaluators.training_log.cause import Cause


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """One iteration line.

    Attributes:
        line: position among the log's iteration lines, from 1.
        number: as the trainer counts, from 1 at each GAS.
    """

    line: int
    number: int
    elapsed_s: float
    accumulation: int | None = None


@dataclass(frozen=True, kw_only=True)
class PowerSample:
    """Watts of all GPUs of a node.

    Attributes:
        after: number of iteration lines before it; the iteration whose `line` is
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
class TrainingLog:
    """The content of one file.

    Attributes:
        iterations: of the last start that was appended to it.
        failure: root cause of its end, if the log has an error of any kind. A successful run may
            have one too, since an error that it survived looks the same.
    """

    iterations: tuple[Iteration, ...] = ()
    power: Power = field(default_factory=Power)
    failure: Cause | None = None
