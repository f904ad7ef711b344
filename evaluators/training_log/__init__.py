"""Reading training logs: iterations of the bundled trainer, power, and the cause of a failure."""

from evaluators.training_log.cause import Cause
from evaluators.training_log.error_line import CauseKind
from evaluators.training_log.log import Iteration, Power, PowerSample, TrainingLog
from evaluators.training_log.reader import LogReader, read_log

__all__ = [
    "Cause",
    "CauseKind",
    "Iteration",
    "LogReader",
    "Power",
    "PowerSample",
    "TrainingLog",
    "read_log",
]
