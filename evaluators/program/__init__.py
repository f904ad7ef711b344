"""What a trial runs on the nodes of a cluster, and how what it left behind is read."""

from evaluators.program.program import AttemptEnd, Launcher, Program

__all__ = ["AttemptEnd", "Launcher", "Program"]
