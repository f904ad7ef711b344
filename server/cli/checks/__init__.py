"""Checks of `autotune doctor`: this machine, Slurm, a cluster profile, a node."""
