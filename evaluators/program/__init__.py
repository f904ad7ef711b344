"""Programs that train inside a trial on a cluster's nodes, and the parsing of their results."""

from evaluators.program.program import AttemptEnd, Launcher, Program

__all__ = ["AttemptEnd", "Launcher", "Program"]
