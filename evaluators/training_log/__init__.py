"""Reading training logs: the bundled trainer's and those of every Megatron."""

from evaluators.training_log.cause import Cause, CauseKind
from evaluators.training_log.reader import LogReader, read_log
from evaluators.training_log.run import (
    Iteration,
    PeakMemory,
    Power,
    PowerSample,
    Run,
    TrainingLog,
)

__all__ = [
    "Cause",
    "CauseKind",
    "Iteration",
    "LogReader",
    "PeakMemory",
    "Power",
    "PowerSample",
    "Run",
    "TrainingLog",
    "read_log",
]
