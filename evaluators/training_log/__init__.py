"""Reading training logs: the bundled trainer's and those of every Megatron."""

from evaluators.training_log.cause import Cause
from evaluators.training_log.error_line import CauseKind
from evaluators.training_log.log import (
    Iteration,
    LoggedRun,
    MicroBatches,
    PeakMemory,
    Power,
    PowerSample,
    TrainingLog,
)
from evaluators.training_log.reader import LogReader, read_log

__all__ = [
    "Cause",
    "CauseKind",
    "Iteration",
    "LogReader",
    "LoggedRun",
    "MicroBatches",
    "PeakMemory",
    "Power",
    "PowerSample",
    "TrainingLog",
    "read_log",
]
