"""Trials as jobs of Slurm: one job for each trial, or many steps in one allocation."""
