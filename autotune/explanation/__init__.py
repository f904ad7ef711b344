"""Explain results: why a strategy is best, the effect of each dimension, what lies beyond the
space, and what would fit into memory.

Pure functions of a calibration, a space and the measurements; every report includes a sentence.
"""
