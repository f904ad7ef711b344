"""Checks of an adapter by a few small runs: `autotune adapter check`."""
