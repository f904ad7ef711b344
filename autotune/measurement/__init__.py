"""Measurements of a trial: metrics, energy, objectives, and trials as a table."""
