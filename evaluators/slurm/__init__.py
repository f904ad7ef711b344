"""Trials on Slurm: one job per trial, or steps in one allocation."""
