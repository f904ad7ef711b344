"""Read the log of a training that this service did not run."""

from evaluators.run_log.reader import read_run, read_runs

__all__ = ["read_run", "read_runs"]
